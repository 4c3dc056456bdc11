# Hits on the sampler CPU are counted and recorded as on every other CPU: a probe on the function that only it calls.
# accel: icount
# cpus: 2
# probes: *Kernel>::sleep_ns
# balanced: profiling.txt
# latency: probe.* 0 lost
# latency: probe.* CPU 0: 
. /etc/ctl.sh
. /etc/profiled.sh
kprof-record probe --places /root/probes.txt sleep_ns -- usleep 100000 > /root/talk.txt 2>&1 || exit 1
cat /root/talk.txt
grep -q lost /root/talk.txt && exit 2
set -- $(grep 'sleep_ns$' /root/talk.txt)
[ "${1:-0}" -ge 2 ] && [ "$2" -gt "$1" ] || exit 3
# With a record for each hit. A probe counts, until its point is asked for records.
profiled_start || exit 4
probe_commands /root/probes.txt > /probes
while read line; do
    echo "$line" > $ctl || exit 5
done < /probes
echo "event probe.* record" > $ctl
echo start > $ctl
dd if=/scheme/zero of=/scheme/null bs=4k count=2000 2> /dd.txt
echo stop > $ctl
echo unprobe all > $ctl || exit 6
echo flush > $ctl
profiled_stop || exit 7
grep -q '^# batch cpu=event-0 ' /root/profiling.txt || exit 8
exit 0
