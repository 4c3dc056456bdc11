# NMIs inside NMIs, as in sweep-handler, with a ring so small that most records go round its end: overwritten, then full.
# verb: sweep
# accel: icount
# cpus: 2
# limit: 300
# append: ring-words=4096 random-seed=7
# serial: nested: 
ctl=/scheme/debug/ctl-profiling
value() {
    sed -n "s/^cpu.1.$1 //p" $ctl
}
echo "mode overwrite" > $ctl && echo "dice 60000" > /kernel/sweep || exit 1
for who in idle user; do echo "keep $who" > $ctl && echo "dice 30000" > /kernel/sweep || exit 2; done
sweep-entries spin 1500 1501 1 1200 1 || exit 3
[ "$(value overwritten)" -gt 10000 ] && [ "$(value lost-nested)" -gt 10000 ] || exit 4
echo "mode drop" > $ctl && echo "dice 5000" > /kernel/sweep || exit 5
[ "$(value lost-full)" -gt 1000 ] || exit 6
[ "$(value sent)" = $(($(value taken) + $(value merged))) ] || exit 7
[ "$(value recorded)" = $(($(value overwritten) + $(value in-ring))) ] || exit 8
echo report > /kernel/sweep
