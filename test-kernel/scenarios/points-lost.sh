# A loop of nothing but recorded hits, with the smallest event rings: what does not fit is lost and counted, the sum of
# the weights is exact, and no sample is lost by it.
# append: event-ring-words=1024
# balanced: profiling.txt
# latency: null.write 60000 hits, 61440000 bytes in all, mean 1024.0 bytes
# latency: null.write balanced: 60000 hits
# event: profiling.txt null.write [lost]
# event: profiling.txt null.write , 61440000 bytes in all
. /etc/profiled.sh
. /etc/ctl.sh
profiled_start || exit 1
echo "event null.write record" > $ctl
echo start > $ctl
pids=
for i in 1 2 3; do
    dd bs=1k count=20000 < /scheme/zero > /scheme/null 2> /dd.txt &
    pids="$pids $!"
done
wait $pids
echo stop > $ctl
echo "event * off" > $ctl
grep -q "^cpu.*lost-full [1-9]" $ctl && exit 2
profiled_stop || exit 3
exit 0
