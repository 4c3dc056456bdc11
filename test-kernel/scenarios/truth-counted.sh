# Counts the pieces of `cargo xtask truth` with the instruction clock. Nothing is sampled.
# accel: icount
# serial: truth: a blocks_of_3000 300
# serial: truth: b blocks_of_20_too 240
# serial: truth: e [syscall]
# Sampling runs, but with only one tick per second. It is needed because the kernel counts its events by task only
# during sampling, and this counting takes instructions.
echo hz 1 > /scheme/debug/ctl-profiling
echo start > /scheme/debug/ctl-profiling
echo 0 > /kernel/truth-a
echo 0 > /kernel/truth-b
truth-entries 0
echo stop > /scheme/debug/ctl-profiling
