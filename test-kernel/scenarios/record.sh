# kprof-record: the command's exit code, a file whose account balances; stat prints counts.
# balanced: failed.txt
record="kprof-record --quiet"
$record -o /root/failed.txt -- sh -c 'dd bs=4k count=20000 < /scheme/zero > /scheme/null; exit 7'
[ $? = 7 ] || exit 1
$record -o /nothing.txt -- /bin/nowhere
[ $? = 127 ] || exit 2
kprof-record stat -- dd if=/scheme/zero of=/scheme/null bs=4k count=5000 > /root/stat.txt 2>&1 || exit 3
grep -q context-switches /root/stat.txt || { cat /root/stat.txt; exit 4; }
