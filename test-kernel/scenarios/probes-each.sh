# Every function that can have a probe has one once, for itself, while the default mix of work runs.
# verb: storm
# accel: tcg
# cpus: 4
# same-as-host: syscall-check
# probes: *
# balanced: profiling.txt
. /etc/ctl.sh
. /etc/profiled.sh
mkdir /check && cd /check
profiled_start || exit 1
echo start > $ctl
probe_commands /root/probes.txt > /probes
work() {
    while [ ! -f /done ]; do
        syscall-check > /syscall-check.txt 2>&1
        cmp /syscall-check.txt /root/syscall-check.txt || echo "wrong: syscall-check" >> /wrong
        echo 1 > /kernel/heap
        echo 20 > /kernel/pages
        echo 50 > /kernel/switch
        touch-pages 1 > /dev/null || echo "wrong: touch-pages" >> /wrong
        cp /bin/syscall-check /copy && cmp /bin/syscall-check /copy || echo "wrong: copy" >> /wrong
        echo round >> /rounds
    done
}
syscall-check > /root/syscall-check.txt 2>&1
work &
worker=$!
while read line; do
    echo "$line" > $ctl || { value error; echo "$line"; exit 2; }
    usleep 5000
    echo unprobe all > $ctl || exit 3
done < /probes
echo > /done
wait $worker
echo "$(wc -l < /probes) functions have had a probe in $(wc -l < /rounds) rounds of work"
[ ! -f /wrong ] || { cat /wrong; exit 4; }
echo stop > $ctl
profiled_stop
