# kprof-record: a short command takes its own time and not that of a wait; a recording holds its own samples, and an
# older profile is kept; stat works while profiled reads, and its sampling goes on.
# accel: icount
# cpus: 3
# balanced: own.txt
# balanced: own.txt.old
. /etc/profiled.sh
. /etc/ctl.sh
# Time is counted in instructions here, so a busy host changes nothing; but files in /root wait for the host.
kprof-record stat -- sleep 0.1 > /root/sleep.txt 2>&1 || exit 1
grep -q '^`sleep 0.1`: 0.1[0-2] s' /root/sleep.txt || { cat /root/sleep.txt; exit 2; }
for try in 1 2 3 4 5; do
    time -p kprof-record --quiet -o /true.txt -- true 2> /root/time.txt || exit 3
    # The longest wait is 0.1 s; the program itself takes some milliseconds to start.
    grep -q '^real 0.0' /root/time.txt || { cat /root/time.txt; exit 4; }
done
time -p kprof-record --quiet -o /true.txt --duration 200ms 2> /root/time.txt || exit 5
grep -q '^real 0.2' /root/time.txt || { cat /root/time.txt; exit 6; }

# Samples from before: the rings have some when the recording begins.
echo start > $ctl
dd if=/scheme/zero of=/scheme/null bs=4k count=20000 2> /dev/null
echo stop > $ctl
# On whichever CPU it ran.
[ $(($(value cpu.1.in-ring) + $(value cpu.2.in-ring))) -gt 0 ] || exit 7
for run in 1 2; do
    kprof-record -o /root/own.txt -- dd if=/scheme/zero of=/scheme/null bs=4k count=2000 2> /root/talk.txt || exit 8
    [ $run = 2 ] || grep -q 'samples from before the recording are not in the file' /root/talk.txt || exit 9
done
[ "$(grep -c '^# kprof-profile' /root/own.txt)" = 1 ] || exit 10
[ "$(value state)" = stopped ] || exit 11

# Beside profiled, which samples on afterwards.
profiled_start || exit 12
kprof-record start || exit 18
kprof-record status > /root/status.txt && grep -q '^running.*; a reader has the streams' /root/status.txt || exit 19
kprof-record stat --hz 3000 -- dd if=/scheme/zero of=/scheme/null bs=4k count=2000 > /root/beside.txt 2>&1 || exit 13
grep -q 'sampled at 3000 Hz' /root/beside.txt || { cat /root/beside.txt; exit 14; }
grep -q 'not accounted' /root/beside.txt && { cat /root/beside.txt; exit 15; }
set -- $(grep '  dd$' /root/beside.txt)
[ "${1:-0}" -gt 0 ] || { cat /root/beside.txt; exit 21; }
[ "$(value state)" = running ] && [ "$(value hz)" = 1000 ] || exit 16
kprof-record stop && [ "$(value state)" = stopped ] || exit 20
exit 0
