# What a hit costs in a loop of one system call: a plain point, and the point of the system call itself. For `cargo
# xtask bench kernel`, which runs the same loop on Linux. Each run with a point on has one with it off before and after.
# verb: bench
# accel: icount
# cpus: 2
. /etc/ctl.sh
measure() {
    echo "event $1 $3" > $ctl || exit 1
    instructions=$(call-cost $2 /scheme/null) || exit 2
    echo "event $1 off" > $ctl
    echo "$1 $3 $instructions" >> /root/calls.txt
}
for kind in "null.write write" "syscall.getppid getppid"; do
    # A point is known from its first hit on.
    for state in off off count off record off; do
        measure $kind $state
    done
done
# A probe on the function that serves each system call. It sees only where a call begins, as Linux's probe does.
function=$(sed -n 's/^\([0-9a-f]*\) .* test_kernel::syscall::serve$/\1/p' /boot/syms.txt)
point=probe.$function
for state in off off count off record off; do
    [ $state = off ] || echo "probe $function" > $ctl || exit 4
    measure $point getppid $state
    echo unprobe all > $ctl
done
sed -i "s/$point/probe/" /root/calls.txt
# All records are in the rings.
for cpu in 0 1; do
    [ "$(value event.$cpu.position-in)" -lt "$(value event.$cpu.ring-words)" ] || exit 3
done
exit 0
