# The trigger ipi: samples come, the account balances, no sample has interrupts off.
# append: trigger=ipi
# balanced: profiling.txt
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
profiled_start || exit 1
echo start > $ctl
echo 20 > /kernel/heap
dd bs=4k count=30000 < /scheme/zero > /scheme/null 2> /dev/null
echo stop > $ctl
profiled_stop || exit 2
grep -q '^trigger ipi' $ctl || exit 3
grep -q '^cpu.1.irq-off 0' $ctl || exit 4
