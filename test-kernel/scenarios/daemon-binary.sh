# The binary form is written to the file and to the second serial port, at ten thousand ticks per second. No sample is
# lost, and both can be folded.
# accel: icount
# balanced: profiling.bin
# folds: serial-2.log
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
profiled_start --binary -o /root/profiling.bin --stream /dev/ttyS1 || exit 1
echo "hz 10000" > $ctl
echo start > $ctl
for i in 1 2 3; do
    dd bs=4k count=10000 < /scheme/zero > /scheme/null 2> /dev/null &
done
sleep 0.4
echo stop > $ctl
! grep '^cpu\.[0-9]*\.lost-full [1-9]' $ctl || exit 2
profiled_stop || exit 3
