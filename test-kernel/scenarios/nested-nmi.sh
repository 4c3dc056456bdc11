# An `int3` in an NMI's handler lets NMIs in, and others come at any instruction from there to the last one: survived,
# counted as nested, the work around them right. `cargo xtask sweep` does this for much longer, and lists the
# instructions.
# accel: icount
# cpus: 2
# append: ring-words=1048576 random-seed=7
# balanced: profiling.txt
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
value() {
    sed -n "s/^cpu.1.$1 //p" $ctl
}
echo "dice 15000" > /kernel/sweep || exit 1
sweep-entries spin 1500 1501 1 600 1 || exit 2
[ "$(value lost-nested)" -gt 5000 ] || exit 3
profiled_start || exit 4
profiled_stop || exit 5
