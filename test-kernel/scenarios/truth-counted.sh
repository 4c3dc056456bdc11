# The pieces of `cargo xtask truth`, counted by the instruction clock; nothing is sampled.
# accel: icount
# serial: truth: a blocks_of_3000 300
# serial: truth: b blocks_of_20_too 240
echo 0 > /kernel/truth-a
echo 0 > /kernel/truth-b
