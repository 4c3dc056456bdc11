# With x2APIC mode, in which the registers of the APIC are MSRs, the sampler's NMIs arrive, and the account balances.
# Not under icount: docs/repeatable.md says why.
# accel: tcg
# since-qemu: 9.0 x2APIC mode
# serial: apic: x2APIC mode
# balanced: profiling.txt
. /etc/profiled.sh
. /etc/ctl.sh
profiled_start || exit 1
echo start > $ctl
# Waits for samples instead of a fixed time, because a busy host may run the sampler only rarely.
for try in $(seq 100); do
    dd bs=4k count=30000 < /scheme/zero > /scheme/null 2> /dev/null
    [ "$(value cpu.1.taken)" -gt 100 ] && [ "$(value cpu.2.taken)" -gt 100 ] && break
done
echo stop > $ctl
profiled_stop || exit 2
[ "$(value cpu.1.taken)" -gt 100 ] && [ "$(value cpu.2.taken)" -gt 100 ] || exit 3
