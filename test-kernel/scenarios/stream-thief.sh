# A process that opens a claimed stream gets EBUSY and no record; the file of the daemon that has the claim loses
# nothing.
# balanced: profiling.txt
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
# Reads a stream once; succeeds where that is refused.
is_refused() {
    dd if=/scheme/debug/profiling-$1 of=/root/stolen bs=64k count=1 2> /root/thief.txt && return 1
    grep -qi 'resource busy' /root/thief.txt && [ ! -s /root/stolen ]
}
profiled_start || exit 1
echo "hz 5000" > $ctl
echo start > $ctl
dd bs=4k count=60000 < /scheme/zero > /scheme/null 2> /dev/null &
work=$!
for try in $(seq 100); do
    for stream in 1 2 3 meta; do
        is_refused $stream || { cat /root/thief.txt; exit 2; }
    done
done
wait $work
echo stop > $ctl
is_refused 1 || exit 3
profiled_stop || exit 4
# Nobody has the claim any more: a raw read is allowed, and finds all records gone to the daemon.
dd if=/scheme/debug/profiling-1 of=/root/stolen bs=64k count=1 2> /dev/null || exit 5
[ ! -s /root/stolen ] || exit 6
[ "$(grep -c -v '^#' /root/profiling.txt)" -gt 100 ] || exit 7
