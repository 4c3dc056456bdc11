# An NMI's handler with an `int3` in it, whose `iret` lets NMIs in, and a second NMI at each of its instructions, in turn, up to
# the last one, and a third one in that: survived, counted as nested, and the work around it is right. Over stacks of each kind, idle
# and user code included. `cargo xtask sweep` lists the instructions.
# verb: sweep
# accel: icount
# cpus: 2
# limit: 300
# append: ring-words=1048576 random-seed=7
# serial: nested: 
ctl=/scheme/debug/ctl-profiling
value() {
    sed -n "s/^cpu.1.$1 //p" $ctl
}
user() {
    sweep-entries spin 1500 1501 1 1200 1 && sweep-entries call 150 450 1 400 7
}
echo 1 > /kernel/module || exit 1
echo "drain on" > /kernel/sweep || exit 1
echo handler > /kernel/sweep || exit 2
[ "$(value lost-nested)" -gt 1000 ] || exit 3
echo measured > /kernel/sweep || exit 4
user && echo "measure on" > /kernel/sweep && user && echo "measure off" > /kernel/sweep || exit 5
echo "dice 150000" > /kernel/sweep || exit 5
echo "keep idle" > $ctl && echo "dice 20000" > /kernel/sweep || exit 6
echo "keep user" > $ctl && user && echo "dice 60000" > /kernel/sweep || exit 7
echo report > /kernel/sweep
cat $ctl > /root/ctl.txt
lost=$(($(value lost-full) + $(value lost-large) + $(value lost-nested) + $(value lost-torn)))
[ "$(value sent)" = $(($(value taken) + $(value merged))) ] || exit 8
[ "$(value taken)" = $(($(value user) + $(value idle) + lost + $(value recorded))) ] || exit 9
[ "$(value recorded)" = $(($(value delivered) + $(value in-ring))) ] || exit 10
