# Every function that can have a probe has one at once.
# verb: storm
# accel: icount
# cpus: 4
# same-as-host: syscall-check
# balanced: profiling.txt
# probes: *
. /etc/ctl.sh
. /etc/profiled.sh
mkdir /check && cd /check
profiled_start || exit 1
echo start > $ctl
probe_commands /root/probes.txt > /probes
while read line; do
    echo "$line" > $ctl || { value error; echo "$line"; exit 2; }
done < /probes
echo "$(wc -l < /probes) functions have probes"
syscall-check > /root/syscall-check.txt 2>&1
echo 4 > /kernel/heap
echo 100 > /kernel/pages
echo 200 > /kernel/switch
dd bs=4k count=1000 < /scheme/zero > /scheme/null
cp /bin/busybox /copy && cmp /bin/busybox /copy || exit 3
echo unprobe all > $ctl || exit 4
echo stop > $ctl
profiled_stop
