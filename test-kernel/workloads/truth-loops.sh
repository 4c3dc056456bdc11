# loops whose distribution is known, for `cargo xtask truth` with a thread per CPU
echo 600000 > /kernel/truth-b
