#!/bin/busybox sh
# What a hit of a tracepoint and of a probe costs Linux in a loop of one system call: init of a Linux that holds
# busybox, perf, the program of the loop, and nothing else. Each run with an event has one without before and after.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mount -t tracefs trace /sys/kernel/tracing
echo -1 > /proc/sys/kernel/perf_event_paranoid
echo 'p:probe/getppid __x64_sys_getppid' > /sys/kernel/tracing/kprobe_events
# The buffer has room for all records, so perf does not run meanwhile.
record="record -a -g --kernel-callchains -m 16M -o /tmp/perf.data"
# Calls in a run of the loop.
calls=10050
measure() {
    echo "$1 $2 $(call-cost $3 /dev/null)" > /dev/ttyS0
}
with() {
    perf $4 $5 > /tmp/perf.log 2>&1 &
    sleep 1
    measure $1 $2 $3
    kill -INT $!
    wait
    # What perf stat or perf record says.
    hits=$(sed -n -e 's/^ *\([0-9,]*\) *[a-z_]*:[a-z_]*  .*/\1/p' -e 's/.* (\([0-9]*\) samples).*/\1/p' /tmp/perf.log |
        tr -d , | head -n 1)
    if [ "${hits:-0}" -lt $calls ]; then
        (echo "perf has failed: $hits hits of $calls"; cat /tmp/perf.log) > /dev/ttyS0
        poweroff -f
    fi
    rm -f /tmp/perf.data
}
each() {
    measure $1 off $2
    with $1 count $2 "stat -a" "$3 sleep 1000"
    measure $1 off $2
    with $1 record $2 "$record" "$3 sleep 1000"
    measure $1 off $2
}
each plain timer "-e timer:itimer_state"
each call getppid "-e syscalls:sys_enter_getppid"
each time getppid "-e syscalls:sys_enter_getppid -e syscalls:sys_exit_getppid"
each probe getppid "-e probe:getppid"
poweroff -f
