# kprof-record is killed. Sampling ends, and rate, filters and CPUs are as before; settings that another process has
# changed since then stay. If profiled is killed, sampling that its user has started continues.
. /etc/profiled.sh
. /etc/ctl.sh
echo "hz 700" > $ctl
echo "depth 33" > $ctl
kprof-record --quiet -o /root/killed.txt --hz 5000 --include user --include idle --cpus 1 --interval fixed --depth 12 \
    -- sleep 10000 &
record=$!
until_is state running || exit 1
until_is hz 5000 || exit 2
[ "$(value include)" = "idle user" ] && [ "$(value interval)" = fixed ] && [ "$(value depth)" = 12 ] || exit 3
echo "depth 50" > $ctl
# A second kprof-record finds the lease or the claim taken, and changes nothing.
kprof-record --quiet -o /root/second.txt --hz 9000 -- true 2> /dev/null && exit 4
until_is hz 5000 || exit 5
kill -KILL $record
wait $record
until_is state stopped || exit 6
until_is hz 700 || exit 7
[ "$(value include)" = - ] && [ "$(value interval)" = "random 25" ] && [ "$(value depth)" = 50 ] || exit 8
until_is protocol 0 || exit 9
before=$(value cpu.2.sent)
echo "include idle" > $ctl
echo start > $ctl
for try in $(seq 600); do
    [ "$(value cpu.2.sent)" -gt "$before" ] && break
    usleep 10000
done
[ "$(value cpu.2.sent)" -gt "$before" ] || exit 10
profiled_start || exit 11
kill -KILL $profiled
wait $profiled
until_is protocol 0 || exit 12
[ "$(value state)" = running ] && [ "$(value include)" = idle ] || exit 13
echo stop > $ctl
