# The binary form is written at ten thousand ticks per second. No sample is lost, and it can be folded.
# accel: icount
# balanced: profiling.bin
# folds: profiling.bin
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
profiled_start --binary -o /root/profiling.bin || exit 1
echo "hz 10000" > $ctl
echo start > $ctl
for i in 1 2 3; do
    dd bs=4k count=10000 < /scheme/zero > /scheme/null 2> /dev/null &
done
sleep 0.4
echo stop > $ctl
! grep '^cpu\.[0-9]*\.lost-full [1-9]' $ctl || exit 2
profiled_stop || exit 3
