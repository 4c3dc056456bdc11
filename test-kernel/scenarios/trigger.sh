# The way self, on a machine with one CPU: no CPU is set apart, its own timer samples it.
# append: way=self
# cpus: 1
# balanced: profiling.txt
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
profiled_start || exit 1
echo start > $ctl
echo 20 > /kernel/heap
# A busy host may give the timer few turns.
for try in $(seq 100); do
    dd bs=4k count=30000 < /scheme/zero > /scheme/null 2> /dev/null
    [ "$(grep '^cpu.0.recorded' $ctl | cut -d' ' -f2)" -gt 10 ] && break
done
echo stop > $ctl
profiled_stop || exit 2
grep -q '^way self' $ctl || exit 3
[ "$(grep '^cpu.0.recorded' $ctl | cut -d' ' -f2)" -gt 10 ] || exit 4
