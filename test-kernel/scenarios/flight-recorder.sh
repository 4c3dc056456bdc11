# The flight recorder with a daemon: rings are overwritten while it runs and read only once it is frozen; then it goes
# on.
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
is_overwritten() {
    grep -q '^cpu\.[0-9]*\.overwritten [1-9]' $ctl
}
echo start > $ctl
# A busy host may give the sampler few turns.
for try in $(seq 20); do
    work
    is_overwritten && break
done
[ "$(lines)" -eq 0 ] || exit 3
echo freeze > $ctl
# Until the daemon has read all that is in the rings, which takes a busy host longer.
for try in $(seq 100); do
    usleep 900000
    frozen=$(lines)
    [ "$frozen" -gt 100 ] && ! grep -q '^cpu\.[0-9]*\.in-ring [1-9]' $ctl && break
done
[ "$frozen" -gt 100 ] || exit 4
is_overwritten || exit 5
echo thaw > $ctl
work
echo stop > $ctl
profiled_stop || exit 6
[ "$(lines)" -gt "$frozen" ] || exit 7
