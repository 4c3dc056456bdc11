#!/bin/busybox sh
# What Linux's perf costs `dd`, in the same machine: init of a Linux that holds busybox, perf and nothing else.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
# As root may, at any rate, however much it costs.
echo -1 > /proc/sys/kernel/perf_event_paranoid
echo 100000 > /proc/sys/kernel/perf_event_max_sample_rate
echo 0 > /proc/sys/kernel/perf_cpu_time_max_percent
clock() { grep -m1 '^now at' /proc/timer_list | cut -d' ' -f3; }
measure() {
    start=$(clock)
    dd bs=4k count="$blocks" < /dev/zero > /dev/null 2> /dev/null
    end=$(clock)
    echo "dd $1 $((end - start))" > /dev/ttyS0
}
for round in $(seq "$rounds"); do
    for hz in 100 1000 100 5000 100; do
        measure off
        # One below, as is usual with perf: not in step with the kernel's own timer.
        perf record -q -a -g -e cpu-clock -F $((hz - 1)) -o /tmp/perf.data sleep 1000 2> /tmp/perf.log &
        sleep 1
        measure $hz
        kill -INT $!
        wait
        if [ ! -s /tmp/perf.data ]; then
            (echo "perf has recorded nothing:"; cat /tmp/perf.log) > /dev/ttyS0
            poweroff -f
        fi
        rm -f /tmp/perf.data
    done
done
measure off
poweroff -f
