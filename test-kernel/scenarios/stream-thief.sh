# A process that opens a claimed stream gets EBUSY and no record. The file of the daemon with the claim has every
# record.
# long: rounds=40
# balanced: profiling.txt
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
# Reads a stream once. Succeeds if the read is refused.
is_refused() {
    dd if=/scheme/debug/profiling-$1 of=/root/stolen bs=64k count=1 2> /root/thief.txt && return 1
    grep -qi 'resource busy' /root/thief.txt && [ ! -s /root/stolen ]
}
profiled_start || exit 1
echo "hz 5000" > $ctl
echo start > $ctl
dd bs=4k count=60000 < /scheme/zero > /scheme/null 2> /dev/null &
work=$!
for try in $(seq ${rounds:-5}); do
    for stream in 1 2 3 meta; do
        is_refused $stream || { cat /root/thief.txt; exit 2; }
    done
done
wait $work
echo stop > $ctl
is_refused 1 || exit 3
profiled_stop || exit 4
# There is no claim any more, so a raw read is allowed. It finds no records, because the daemon got all of them.
dd if=/scheme/debug/profiling-1 of=/root/stolen bs=64k count=1 2> /dev/null || exit 5
[ ! -s /root/stolen ] || exit 6
[ "$(grep -c -v '^#' /root/profiling.txt)" -gt 100 ] || exit 7
