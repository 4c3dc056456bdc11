# A second daemon on the same rings is refused, and the first one continues.
# balanced: profiling.txt
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
profiled_start || exit 1
profiled --quiet -o /root/second.txt
[ $? = 4 ] || exit 2
echo start > $ctl
dd bs=4k count=20000 < /scheme/zero > /scheme/null 2> /dev/null
echo stop > $ctl
profiled_stop || exit 3
