# On sixteen CPUs fifteen run threads. Jobs run at the same time, and their results are right.
# cpus: 16
# serial: smp: 16 CPUs run
set -e
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    (seq 1 2000 | awk '{ sum += $1 } END { print sum }' > /sum-$i) &
done
wait
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    [ "$(cat /sum-$i)" = 2001000 ]
done
# Of two processes that create the same file at the same time, each gets it.
for i in $(seq 200); do
    rm -f /same
    : > /same &
    : > /same
    wait $!
done
