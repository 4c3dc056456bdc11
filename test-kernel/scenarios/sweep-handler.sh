# NMIs in the handler of an NMI. First one comes at each of its instructions in turn, after an `int3`. Then the handler
# is single-stepped, and an NMI comes at each instruction that none has hit yet, with stacks and registers of every
# kind, with user code, and with every setting. The kernel survives, the NMIs are counted as nested, and the interrupted
# work is right. `cargo xtask sweep` lists the instructions.
# verb: sweep
# accel: icount
# cpus: 2
# limit: 1200
# append: ring-words=1048576
# serial: nested: 
. /etc/ctl.sh
sweep() {
    for order in "$@"; do echo "$order" > /kernel/sweep || return 1; done
}
user() {
    sweep-entries call 1 1000 && sweep-entries spin 1500 1520 || return 1
    for end in root nowhere half; do sweep-entries $end 300 600 || return 1; done
}
thrown() {
    sweep stacks stacks "dice $1" "registers $1"
}
echo 1 > /kernel/module || exit 1
sweep "drain on" handler || exit 2
[ "$(value cpu.1.lost-nested)" -gt 1000 ] || exit 3
sweep "steps on" tree unknown unknown frameless && thrown 1500 && user || exit 4
sweep "measure on" tree stacks stacks && user && sweep "measure off" || exit 5
echo "include idle" > $ctl && thrown 1000 || exit 6
echo "include user" > $ctl && thrown 1000 && user || exit 7
# First with a depth at which the fast path takes at most one round, then with one at which it takes none.
# At the first one, a program has more callers than that round, and more than the depth allows.
echo "depth 20" > $ctl && sweep stacks stacks && sweep-entries many 300 600 || exit 8
sweep "measure on" stacks stacks && sweep-entries many 300 600 && sweep "measure off" || exit 8
sweep-entries deep 1500 1520 || exit 8
echo "depth 4" > $ctl && thrown 1000 && user || exit 9
sweep report
cat $ctl > /root/ctl.txt
lost=$(($(value cpu.1.lost-full) + $(value cpu.1.lost-nested) + $(value cpu.1.lost-torn)))
[ "$(value cpu.1.sent)" = $(($(value cpu.1.taken) + $(value cpu.1.coalesced))) ] || exit 10
[ "$(value cpu.1.taken)" = $(($(value cpu.1.user) + $(value cpu.1.idle) + lost + $(value cpu.1.recorded))) ] || exit 11
[ "$(value cpu.1.recorded)" = $(($(value cpu.1.delivered) + $(value cpu.1.in-ring))) ] || exit 12
