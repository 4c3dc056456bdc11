# a bit of everything on three CPUs, for `cargo xtask truth` at all rates
echo 6000 > /kernel/truth-b &
truth-entries 3000 &
dd bs=4k count=1500 < /scheme/zero > /scheme/null 2> /dev/null
wait
usleep 20000
