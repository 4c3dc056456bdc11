# Prints the guest's clock ten times, and after four seconds ten times more. `cargo xtask truth` compares it with the
# host's clock.
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
# Gives the host the time to read the last line before the machine ends.
sleep 1
