# What tasks wait for: their time off the CPU, with their stacks and the reason; and what each did with its time, which
# adds up to the tick.
# cpus: 2
# append: event-ring-words=65536
# balanced: profiling.txt
# waits: profiling.txt
# event: profiling.txt sched.off-cpu 0 lost
# event: profiling.txt sched.off-cpu ns of sched.off-cpu in
. /etc/profiled.sh
. /etc/ctl.sh
profiled_start || exit 1
echo "event sched.* record" > $ctl
echo start > $ctl
sleep 0.5
{ sleep 0.3; echo done; } | cat > /cat.txt
echo stop > $ctl
echo "event sched.* off" > $ctl
profiled_stop || exit 2
exit 0
