# Points count every hit from their command on, on all CPUs, without sampling; the account is in the file.
# balanced: profiling.txt
# latency: null.write 30000 hits, 92160000 bytes in all, mean 3072.0 bytes
# latency: null.write 1024 to 2047        10000   33.33
# latency: null.write 4096 to 8191        20000   66.67
# latency: null.write balanced: 30000 hits = 0 recorded + 30000 only counted + 0 lost
# latency: page.fault 0 lost
. /etc/profiled.sh
. /etc/ctl.sh
dd bs=1k count=100 < /scheme/zero > /scheme/null 2> /dd.txt
[ "$(value point.null.write)" = "bytes off" ] || exit 2
profiled_start || exit 3
echo "event null.* count" > $ctl
echo "event page.fault count" > $ctl
dd bs=4k count=20000 < /scheme/zero > /scheme/null 2> /dd.txt &
dd bs=1k count=10000 < /scheme/zero > /scheme/null 2> /dd.txt
wait $!
echo start > $ctl
touch-pages 4
echo stop > $ctl
echo "event * off" > $ctl
dd bs=1k count=100 < /scheme/zero > /scheme/null 2> /dd.txt
profiled_stop || exit 4
# `kprof-record stat` alone: the hits of its command and its own few, and not those before it.
kprof-record stat -e 'null.*' -x , -- dd bs=1k count=1000 if=/scheme/zero of=/scheme/null 2> /dd.txt
grep -q '^100[0-9],,null.write,' /dd.txt || { cat /dd.txt; exit 5; }
grep -q '^10[2-9][0-9]\{4\},bytes,null.write:weight,' /dd.txt || { cat /dd.txt; exit 6; }
exit 0
