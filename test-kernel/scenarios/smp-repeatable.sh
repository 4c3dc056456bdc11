# Eight CPUs under `-icount`, where every waiting loop must let the other CPUs run.
# cpus: 8
# accel: icount
# serial: smp: 8 CPUs run
set -e
for i in 1 2 3 4 5 6; do
    touch-pages 2 &
done
wait
echo 500 > /kernel/switch
