# NMIs without a tick of their own are classified correctly. An NMI that is not the profiler's is foreign, inside and
# outside of the handler, and no tick is lost because of it. If the second of two ticks is latched until the handler of
# the first has taken both, its NMI is spurious.
# accel: icount
# cpus: 2
# append: ring-words=1048576
# balanced: profiling.txt
. /etc/profiled.sh
. /etc/ctl.sh
say() {
    echo "strange-nmis: $1: $(for name in sent taken coalesced resent spurious foreign lost-nested; do echo "$name $(value cpu.1.$name)"; done | tr '\n' ' ')"
}
echo "foreign on" > /kernel/sweep || exit 1
sweep-entries spin 1500 1501 1 400 1 || exit 2
echo "foreign off" > /kernel/sweep || exit 3
say "a foreign one after each"
# For each tick that the sampler has signalled again, one NMI without a tick is spurious. If the second signal arrives
# in the handler before that has taken the tick, this NMI takes the tick, which is then lost as nested: seen with QEMU
# 10 and 11, where the sampler runs between the instructions of a handler. A foreign NMI never costs a tick.
[ "$(value cpu.1.foreign)" -ge $((399 - $(value cpu.1.resent))) ] && [ $(($(value cpu.1.foreign) + $(value cpu.1.spurious))) -ge 399 ] && [ "$(value cpu.1.lost-nested)" -le "$(value cpu.1.resent)" ] && [ "$(value cpu.1.coalesced)" = 0 ] || exit 4
foreign=$(value cpu.1.foreign) taken=$(value cpu.1.taken) spurious=$(value cpu.1.spurious)
for try in $(seq 50); do
    echo latched > /kernel/sweep || exit 5
done
say "two at once"
[ "$(value cpu.1.coalesced)" = 50 ] && [ "$(value cpu.1.taken)" = $((taken + 50)) ] || exit 6
# As above, a tick that was signalled again may have a spurious NMI too.
[ "$(value cpu.1.spurious)" -ge $((spurious + 50)) ] || exit 10
[ "$(value cpu.1.spurious)" -le $((50 + $(value cpu.1.resent))) ] || exit 11
[ "$(value cpu.1.foreign)" = $foreign ] || exit 7
profiled_start || exit 8
profiled_stop || exit 9
