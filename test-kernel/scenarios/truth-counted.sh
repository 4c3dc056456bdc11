# The pieces of `cargo xtask truth`, counted by the instruction clock; nothing is sampled.
# accel: icount
# serial: truth: a blocks_of_3000 300
# serial: truth: b blocks_of_20_too 240
# serial: truth: e [syscall]
# The kernel counts its events by context only while sampling runs, which takes instructions: so it runs, at a tick a
# second.
echo hz 1 > /scheme/debug/ctl-profiling
echo start > /scheme/debug/ctl-profiling
echo 0 > /kernel/truth-a
echo 0 > /kernel/truth-b
truth-entries 0
echo stop > /scheme/debug/ctl-profiling
