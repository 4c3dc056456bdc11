# NMIs that are no plain tick get their right name: one of somebody else's inside the handler, and outside, is foreign
# and no tick is lost for it; the second one of two of ours, latched until the handler of the first has taken both
# ticks, is spurious.
# accel: icount
# cpus: 2
# append: ring-words=1048576
# balanced: profiling.txt
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
value() {
    sed -n "s/^cpu.1.$1 //p" $ctl
}
say() {
    echo "strange-nmis: $1: $(for name in sent taken merged spurious foreign lost-nested; do echo "$name $(value $name)"; done | tr '\n' ' ')"
}
echo "foreign on" > /kernel/sweep || exit 1
sweep-entries spin 1500 1501 1 400 1 || exit 2
echo "foreign off" > /kernel/sweep || exit 3
say "a foreign one after each"
[ "$(value foreign)" -ge 390 ] && [ "$(value lost-nested)" = 0 ] && [ "$(value merged)" = 0 ] || exit 4
foreign=$(value foreign) taken=$(value taken) spurious=$(value spurious)
for try in $(seq 50); do
    echo latched > /kernel/sweep || exit 5
done
say "two at once"
[ "$(value spurious)" = $((spurious + 50)) ] && [ "$(value merged)" = 50 ] && [ "$(value taken)" = $((taken + 50)) ] || exit 6
[ "$(value foreign)" = $foreign ] || exit 7
profiled_start || exit 8
profiled_stop || exit 9
