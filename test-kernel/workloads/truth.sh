# work whose distribution is known, for `cargo xtask truth`
echo 100000 > /kernel/truth-a
