# The trigger published: nobody is interrupted, entries are known, idle is known, the account balances.
# append: trigger=published
# balanced: profiling.txt
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
profiled_start || exit 1
echo start > $ctl
dd bs=4k count=50000 < /scheme/zero > /scheme/null 2> /dev/null
# A busy host may give the sampler few turns.
for try in $(seq 100); do
    [ "$(grep '^cpu.1.idle' $ctl | cut -d' ' -f2)" -gt 10 ] && break
    usleep 200000
done
echo stop > $ctl
profiled_stop || exit 2
grep -q '^trigger published' $ctl || exit 3
[ "$(grep '^cpu.1.idle' $ctl | cut -d' ' -f2)" -gt 10 ] || exit 4
