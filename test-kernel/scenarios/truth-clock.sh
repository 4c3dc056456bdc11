# Two looks at the guest's clock, for `cargo xtask truth` to compare with the host's.
# accel: tcg
# cpus: 2
# serial: clock now:
echo "clock now: $(cat /kernel/clock)"
usleep 4000000
echo "clock now: $(cat /kernel/clock)"
# Whoever reads along has the time to see it.
sleep 1
