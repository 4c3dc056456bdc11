# Eight CPUs on counted instructions: every loop that waits must give its turn away.
# cpus: 8
# accel: icount
# serial: smp: 8 CPUs run
set -e
for i in 1 2 3 4 5 6; do
    touch-pages 2 &
done
wait
echo 500 > /kernel/switch
