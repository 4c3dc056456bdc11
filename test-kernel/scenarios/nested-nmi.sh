# An `int3` in an NMI's handler allows further NMIs, which come at any instruction from there to the last one. The
# kernel survives, they are counted as nested, and the interrupted work is right. `cargo xtask sweep` does this for much
# longer, and lists the instructions.
# accel: icount
# cpus: 2
# append: ring-words=1048576 random-seed=7
# balanced: profiling.txt
. /etc/profiled.sh
. /etc/ctl.sh
echo "dice 15000" > /kernel/sweep || exit 1
sweep-entries spin 1500 1501 1 600 1 || exit 2
[ "$(value cpu.1.lost-nested)" -gt 5000 ] || exit 3
profiled_start || exit 4
profiled_stop || exit 5
