# Two functions hold a lock that two threads wait for, 70 and 30 % of the time. What the profile says of waiters and
# holders is what the kernel has counted, and the waiters' time is the holders' time, to the nanosecond.
# accel: icount
# cpus: 4
# append: event-ring-words=65536
# locks: profiling.txt
. /etc/profiled.sh
. /etc/ctl.sh
profiled_start || exit 1
echo "event lock.* record" > $ctl
echo 20 > /kernel/locks
echo flush > $ctl
echo "event lock.* off" > $ctl
profiled_stop || exit 2
exit 0
