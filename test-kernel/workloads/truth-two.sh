# two CPUs with work whose distribution is known, for `cargo xtask truth`
echo 100000 > /kernel/truth-b &
echo 60000 > /kernel/truth-a
wait $!
