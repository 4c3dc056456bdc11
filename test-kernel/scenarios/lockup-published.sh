# With the trigger `published` nothing is sent to a CPU. A deadlock is found by what the two CPUs have published.
# accel: icount
# append: trigger=published
# serial: kprof: soft lockup: CPU
# serial: reason=one-task
. /etc/ctl.sh
echo "lockup 100" > $ctl || exit 1
echo start > $ctl
echo "planted deadlock 300" > /kernel/stuck || exit 2
echo stop > $ctl
