# The samples are written to the second serial port instead of a file, and can be folded.
# folds: serial-2.log
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
profiled_start -o /dev/ttyS1 || exit 1
echo start > $ctl
for i in 1 2 3 4 5; do
    dd bs=4k count=10000 < /scheme/zero > /scheme/null 2> /dev/null
    usleep 50000
done
echo stop > $ctl
profiled_stop || exit 2
