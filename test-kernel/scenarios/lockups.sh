# Planted lockups of each kind: a loop with interrupts off, a deadlock of two CPUs, a livelock of two CPUs, a CPU that
# waits for a lock which another one holds, a CPU that stays inside an NMI. Each CPU is reported once, within 1.1 times
# the threshold, with the function, in the serial log and in the profile; and nothing else is.
# accel: icount
# balanced: profiling.txt
# lockups: serial.log 100
# lockups: profiling.txt 100
# serial: kprof: soft lockup: CPU
# serial: kprof: hard lockup: CPU
. /etc/profiled.sh
. /etc/ctl.sh
profiled_start || exit 1
echo start > $ctl
echo "interrupts-off 300" > /kernel/stuck || exit 2
echo "lockup 100" > $ctl || exit 3
[ "$(value lockup-ms)" = 100 ] || exit 4
for kind in interrupts-off deadlock livelock lock in-nmi; do
    echo "planted $kind 300" > /kernel/stuck || exit 5
    usleep 50000
done
echo "lockup off" > $ctl || exit 6
[ -z "$(value lockup-ms)" ] || exit 7
echo "interrupts-off 300" > /kernel/stuck || exit 8
echo stop > $ctl
profiled_stop || exit 9
