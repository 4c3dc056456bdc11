# The rings are full and nobody reads them, so no sample of the lockup is recorded. It is reported even so, because the
# counters show kernel code and no switch of tasks; where the CPU was is not known.
# accel: icount
# append: ring-words=1024
# serial: kprof: soft lockup: CPU
# serial: reason=one-task
# serial: unknown=
. /etc/ctl.sh
echo "lockup 100" > $ctl || exit 1
echo start > $ctl
is_full() {
    for cpu in 1 2 3; do
        [ "$(value cpu.$cpu.lost-full)" -gt 0 ] || return 1
    done
}
for try in $(seq 50); do
    for job in 1 2 3; do
        dd bs=4k count=10000 < /scheme/zero > /scheme/null 2> /dev/null &
    done
    wait
    is_full && break
done
is_full || exit 2
echo "planted interrupts-off 300" > /kernel/stuck || exit 3
echo stop > $ctl
