# The flight recorder with a daemon. Rings are overwritten while it runs, and read only after it was frozen. Then it
# continues.
# append: ring-words=4096
# balanced: profiling.txt
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
lines() {
    grep -c -v '^#' /root/profiling.txt
}
work() {
    workers=""
    for i in 1 2 3; do
        dd bs=4k count=30000 < /scheme/zero > /scheme/null 2> /dev/null &
        workers="$workers $!"
    done
    wait $workers
}
echo "mode overwrite" > $ctl || exit 1
echo "hz 10000" > $ctl
profiled_start || exit 2
in_rings() {
    sum=0
    for records in $(sed -n 's/^cpu\.[0-9]*\.in-ring //p' $ctl); do
        sum=$((sum + records))
    done
    echo $sum
}
is_overwritten() {
    grep -q '^cpu\.[0-9]*\.overwritten [1-9]' $ctl
}
echo start > $ctl
# Repeats the work until records were overwritten, because a busy host may run the sampler only rarely.
for try in $(seq 20); do
    work
    is_overwritten && break
done
# Nothing is read while it runs, but for a round that had begun before the start.
for try in $(seq 5); do
    read=$(lines)
    work
    [ "$(lines)" -eq "$read" ] && break
done
[ "$(lines)" -eq "$read" ] || exit 3
echo freeze > $ctl
# Waits until the daemon has read everything in the rings, which takes longer on a busy host. The records stay there.
for try in $(seq 100); do
    usleep 900000
    frozen=$(lines)
    [ "$frozen" -ge "$(in_rings)" ] && break
done
[ "$frozen" -gt $((read + 100)) ] && [ "$frozen" -ge "$(in_rings)" ] || exit 4
is_overwritten || exit 5
echo thaw > $ctl
work
echo stop > $ctl
profiled_stop || exit 6
[ "$(lines)" -gt "$frozen" ] || exit 7

# The same without a daemon that runs all the time, as docs/recording.md shows it; the recorder goes on.
echo start > $ctl
work
echo freeze > $ctl
profiled --quiet -o /root/flight.txt --duration 1s || exit 8
echo thaw > $ctl
[ "$(grep -c -v '^#' /root/flight.txt)" -gt 100 ] || exit 9
grep -q '^state running' $ctl || exit 10
echo stop > $ctl
exit 0
