# NMIs in the handler of an NMI: one at each of its instructions in turn, behind an `int3`; then one at each instruction
# that none has hit yet, the handler in single steps, above stacks and registers of every kind, user code included, with
# every setting. Survived, counted as nested, and the work around it is right. `cargo xtask sweep` lists the
# instructions.
# verb: sweep
# accel: icount
# cpus: 2
# limit: 1200
# append: ring-words=1048576
# serial: nested: 
ctl=/scheme/debug/ctl-profiling
value() {
    sed -n "s/^cpu.1.$1 //p" $ctl
}
sweep() {
    for order in "$@"; do echo "$order" > /kernel/sweep || return 1; done
}
user() {
    sweep-entries call 1 1000 && sweep-entries spin 1500 1520
}
thrown() {
    sweep stacks stacks "dice $1" "registers $1"
}
echo 1 > /kernel/module || exit 1
sweep "drain on" handler || exit 2
[ "$(value lost-nested)" -gt 1000 ] || exit 3
sweep "steps on" tree unknown unknown edges && thrown 1500 && user || exit 4
sweep "measure on" tree stacks stacks && user && sweep "measure off" || exit 5
echo "keep idle" > $ctl && thrown 1000 || exit 6
echo "keep user" > $ctl && thrown 1000 && user || exit 7
# So few frames that a plain walk takes one round at most; then, none.
echo "depth 20" > $ctl && sweep stacks stacks "measure on" stacks stacks "measure off" || exit 8
echo "depth 4" > $ctl && thrown 1000 && user || exit 9
sweep report
cat $ctl > /root/ctl.txt
lost=$(($(value lost-full) + $(value lost-nested) + $(value lost-torn)))
[ "$(value sent)" = $(($(value taken) + $(value merged))) ] || exit 10
[ "$(value taken)" = $(($(value user) + $(value idle) + lost + $(value recorded))) ] || exit 11
[ "$(value recorded)" = $(($(value delivered) + $(value in-ring))) ] || exit 12
