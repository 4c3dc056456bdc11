# Looks at the guest's clock, for `cargo xtask truth` to compare with the host's: ten, four seconds, ten.
# accel: tcg
# cpus: 2
# serial: clock now:
looks() {
    for look in 1 2 3 4 5 6 7 8 9 10; do
        echo "clock now: $(cat /kernel/clock)"
        usleep 20000
    done
}
looks
usleep 4000000
looks
# Whoever reads along has the time to see it.
sleep 1
