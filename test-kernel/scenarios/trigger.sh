# Each trigger except `nmi` gives samples, and the account balances. With `ipi` no sample has interrupts off. With
# `published` no CPU is interrupted, and idle time is known. With `timer`, on a machine with one CPU, there is no
# sampler CPU: the CPU's own timer samples it.
# run: trigger=ipi
# run: trigger=published
# run: trigger=timer cpus=1
# balanced: profiling.txt
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
case $trigger in
ipi) counter=cpu.1.taken ;;
published) counter=cpu.1.idle ;;
timer) counter=cpu.0.recorded ;;
*) exit 9 ;;
esac
profiled_start || exit 1
echo start > $ctl
[ $trigger = published ] || echo 20 > /kernel/heap
# Waits for samples instead of a fixed time, because a busy host may run the sampler, or the timer, only rarely.
for try in $(seq 100); do
    dd bs=4k count=30000 < /scheme/zero > /scheme/null 2> /dev/null
    [ "$(grep "^$counter " $ctl | cut -d' ' -f2)" -gt 10 ] && break
    [ $trigger = published ] && usleep 200000
done
echo stop > $ctl
profiled_stop || exit 2
grep -q "^trigger $trigger" $ctl || exit 3
[ "$(grep "^$counter " $ctl | cut -d' ' -f2)" -gt 10 ] || exit 4
if [ $trigger = ipi ]; then
    grep -q '^cpu.1.irq-off 0' $ctl || exit 5
fi
