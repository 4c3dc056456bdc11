# system calls and page faults only, for `cargo xtask sweep`
dd bs=4k count=250000 < /scheme/zero > /scheme/null 2> /dev/null &
touch-pages 400 &
wait
