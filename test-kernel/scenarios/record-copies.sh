# kprof-record beside profiled: both files have every sample, the recording has the names of its tasks, and rate and
# filters are as before; also after a kill.
# accel: icount
# cpus: 3
# balanced: profiling.txt
# balanced: copies.txt
# balanced: copies.bin
. /etc/profiled.sh
. /etc/ctl.sh
work() {
    dd if=/scheme/zero of=/scheme/null bs=4k count=$1 2> /dev/null
}
# Files in /root wait for the host, so the programs write to RAM.
profiled_start -o /profiling.txt || exit 1
kprof-record start || exit 2
work 2000
[ "$(value reader)" = "$profiled" ] || exit 3

kprof-record -o /copies.txt --hz 5000 --include user --mark recorded -- \
    dd if=/scheme/zero of=/scheme/null bs=4k count=400000 2> /root/talk.txt || exit 4
grep -q "process $profiled reads the samples too" /root/talk.txt || { cat /root/talk.txt; exit 5; }
grep -q ', 0 lost$' /root/talk.txt || { cat /root/talk.txt; exit 6; }
[ "$(value state)" = running ] && [ "$(value hz)" = 1000 ] && [ "$(value include)" = - ] || exit 7
kprof-record status > /root/status.txt || exit 8
grep -q '^running.* 1000 Hz, .*include [-]; a reader' /root/status.txt || { cat /root/status.txt; exit 8; }
kprof-record --quiet --binary -o /copies.bin --hz 5000 -- dd if=/scheme/zero of=/scheme/null bs=4k count=5000 || exit 9

# Points are counted by the copies too.
kprof-record stat -e null.write -x , -- dd if=/scheme/zero of=/scheme/null bs=1k count=3000 > /stat.txt 2>&1 || exit 22
grep -q '^30[0-9][0-9],,null.write,' /stat.txt || { cat /stat.txt; exit 23; }

# A recording that is killed, while another one is refused.
kprof-record --quiet -o /killed.txt --hz 5000 --include user --cpus 1 -- sleep 10000 &
record=$!
until_is hz 5000 || exit 10
kprof-record --quiet -o /second.txt --hz 9000 -- true 2> /dev/null
[ $? = 125 ] && [ "$(value hz)" = 5000 ] && [ ! -e /second.txt ] || exit 11
kill -KILL $record
wait $record
until_is hz 1000 || exit 12
[ "$(value state)" = running ] && [ "$(value include)" = - ] || exit 13
before=$(value cpu.2.sent)
work 2000
[ "$(value cpu.2.sent)" -gt "$before" ] || exit 14

kprof-record stop && profiled_stop || exit 15
# Nothing was lost for profiled, nothing is in its file twice, and the recording has no sample that it has not.
grep '^# account' /profiling.txt > /root/account.txt
[ "$(grep -c 'lost-full=0 lost-nested=0 lost-torn=0 ' /root/account.txt)" = 2 ] || { cat /root/account.txt; exit 16; }
for file in /profiling.txt /copies.txt; do
    [ "$(grep -c '^# mark .*name=recorded$' $file)" = 1 ] || exit 17
done
grep -v '^#' /profiling.txt | sort > /all.txt
grep -v '^#' /copies.txt | sort > /own.txt
[ "$(wc -l < /own.txt)" -gt 2000 ] && [ -z "$(comm -23 /own.txt /all.txt | head -n 3)" ] || exit 18
[ -z "$(uniq -d /all.txt | head -n 3)" ] || exit 19
# Tasks that were named long before the recording have their names in it too.
grep -q '^id[0-9a-f]* ' /own.txt && exit 20
grep -q '^dd ' /own.txt || exit 21
cp /profiling.txt /copies.txt /copies.bin /root/
exit 0
