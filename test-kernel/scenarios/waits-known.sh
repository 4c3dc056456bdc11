# What the profile says of threads whose waits are known is what the kernel has counted; and it is exact to the tick.
# accel: icount
# cpus: 2
# append: event-ring-words=65536
# waits: profiling.txt
# event: profiling.txt sched.off-cpu 0 lost
. /etc/profiled.sh
. /etc/ctl.sh
profiled_start || exit 1
echo "event sched.off-cpu record" > $ctl
echo 20 > /kernel/waits
echo flush > $ctl
echo "event sched.off-cpu off" > $ctl
profiled_stop || exit 2
exit 0
