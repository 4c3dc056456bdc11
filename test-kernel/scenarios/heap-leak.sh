# A leak of one allocation in a hundred is found, with its bytes, at one sample per 64 KiB: the stacks of the
# allocations that were not freed are those of the function that forgets them, within the bounds of chance. The kernel
# itself counts what it allocates and forgets.
# accel: icount
# cpus: 2
# append: event-ring-words=1048576
# heap: profiling.txt
. /etc/profiled.sh
. /etc/ctl.sh
profiled_start || exit 1
echo "event heap.* by-weight 65536" > $ctl
echo 4000 > /kernel/leak
echo flush > $ctl
echo "event heap.* off" > $ctl
profiled_stop || exit 2
exit 0
