# The serial form is sent to the second serial port while the file is written. Both can be folded.
# balanced: profiling.txt
# folds: serial-2.log
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
profiled_start --stream /dev/ttyS1 || exit 1
echo start > $ctl
for i in 1 2 3 4 5; do
    dd bs=4k count=10000 < /scheme/zero > /scheme/null 2> /dev/null
    usleep 50000
done
echo stop > $ctl
profiled_stop || exit 2
