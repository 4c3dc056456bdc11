# kprof-record: the command's exit code, a file whose account balances; stat prints counts.
# balanced: failed.txt
record="kprof-record --quiet"
$record -o /root/failed.txt -- sh -c 'dd bs=4k count=20000 < /scheme/zero > /scheme/null; exit 7'
[ $? = 7 ] || exit 1
$record -o /nothing.txt -- /bin/nowhere
[ $? = 127 ] || exit 2
kprof-record stat -- dd if=/scheme/zero of=/scheme/null bs=4k count=5000 > /root/stat.txt 2>&1 || exit 3
grep -q context-switches /root/stat.txt || { cat /root/stat.txt; exit 4; }
# Also by task: `dd` had its own events, and the sum of all rows is not more than the total.
set -- $(grep '  dd$' /root/stat.txt)
[ "$1" -gt 0 ] && [ "$2" -gt 0 ] || { cat /root/stat.txt; exit 5; }
all=$(sed -n 's/^ *\([0-9]*\)  page-faults .*/\1/p' /root/stat.txt)
rows=$(sed -n '/ task$/,$p' /root/stat.txt |
    { sum=0; while read -r a b c d; do sum=$((sum + $b)); done; echo $sum; } 2> /dev/null)
[ "$rows" -gt 0 ] && [ "$rows" -le "$all" ] || { cat /root/stat.txt; exit 6; }
# Tasks that were named long before this reader started have their names too.
grep -q '  [a-z/0-9]*id[0-9a-f]*$' /root/stat.txt && { cat /root/stat.txt; exit 7; }
exit 0
