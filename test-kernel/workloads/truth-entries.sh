# user code, system calls, page faults and idle time whose shares are known, for `cargo xtask truth`
cat /kernel/idle
truth-entries 200000
usleep 400000
cat /kernel/idle
