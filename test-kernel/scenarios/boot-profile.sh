# The boot is sampled from its first instructions on. The profile has the setup of memory, ACPI, the other CPUs and the
# devices, and the samples of the sampler after it has taken over. The records stay in the ring until profiled starts.
# accel: icount
# cpus: 4
# append: boot-profile=1 cpus=4 hz=50000 ring-words=65536
# balanced: profiling.txt
# folded: kmain;test_kernel::memory::init
# folded: kmain;test_kernel::device::acpi::read
# folded: kmain;test_kernel::cpu::smp::start_all
# folded: test_kernel::boot::mount_share
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
grep -q '^state running' $ctl || exit 1
[ "$(sed -n 's/^cpu.0.recorded //p' $ctl)" -gt 100 ] || exit 2
[ "$(sed -n 's/^cpu.1.taken //p' $ctl)" -gt 10 ] || exit 3
# The boot is over, so a lower rate is enough from here on.
echo hz 1000 > $ctl
profiled_start || exit 4
echo stop > $ctl
profiled_stop || exit 5
grep -q '^# setting .*value=trigger%20nmi' /root/profiling.txt || exit 6
grep -q '^boot 0 ' /root/profiling.txt || exit 7
