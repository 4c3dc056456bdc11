# A machine without a disk: the points of its requests do not exist, and a choice of them does no harm.
# cpus: 2
# balanced: profiling.txt
. /etc/profiled.sh
. /etc/ctl.sh
[ -e /dev/vda ] && exit 1
profiled_start || exit 2
echo "event block.* record" > $ctl
echo start > $ctl
echo 10 > /kernel/block && exit 3
usleep 200000
echo stop > $ctl
[ "$(value point.block.read)" = "" ] || exit 4
profiled_stop || exit 5
exit 0
