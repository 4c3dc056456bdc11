# More points than the meta stream has room for, in names and in counts: `kprof-record stat` has all counts.
# accel: icount
# cpus: 3
# probes: *
. /etc/ctl.sh
# A point stays when its probe is removed.
kprof-record probe --places /root/probes.txt -- true > /root/all.txt 2>&1 || { cat /root/all.txt; exit 1; }
points=$(grep -c '^point.probe' $ctl)
echo "$points points"
[ "$points" -gt 700 ] || exit 2
kprof-record stat -e 'probe.*' -e '*' -x , -- dd bs=1k count=1000 if=/scheme/zero of=/scheme/null > /root/stat.txt 2>&1
grep 'null.write' /root/stat.txt
grep -q 'not counted' /root/stat.txt && exit 3
# kprof-record writes to the null device too, once for each round.
grep -q '^10[0-9][0-9],,null.write,' /root/stat.txt || { tail -n 20 /root/stat.txt; exit 4; }
exit 0
