# The allocations and frees of several CPUs at once: every free of a recorded allocation is recognized, whichever CPU
# frees it, also if profiled is killed meanwhile; the account is balanced.
# append: event-ring-words=262144
# event: profiling.txt heap.alloc bytes of heap.alloc in
# event: profiling.txt heap.alloc  0 lost
# event: profiling.txt heap.free  0 lost
# latency: heap.alloc   balanced: 
# latency: heap.free   balanced: 
. /etc/ctl.sh
start() {
    rm -f /profiled.pid
    profiled --quiet --scheme /scheme/debug --pid-file /profiled.pid &
    profiled=$!
    until read -r pid 2> /error.txt < /profiled.pid && [ "$pid" = "$profiled" ]; do usleep 200000; done
}
start
echo "event heap.* by-weight 16384" > $ctl
for i in 1 2 3; do
    echo 3 > /kernel/heap &
    first=$!
    echo 3 > /kernel/heap &
    second=$!
    sh -c 'cat /bin/busybox > /copy' &
    wait $first $second $!
    kill -KILL $profiled
    wait $profiled
    start
done
echo "event heap.* off" > $ctl
kill -TERM $profiled
wait $profiled
exit 0
