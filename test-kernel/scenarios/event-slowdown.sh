# How much longer the default workload takes if the points of one kind (`points=` on the command line) are counted, and
# if all their hits are recorded; and how many hits it has. For `cargo xtask bench kernel`. Runs in turns, on one CPU
# that counts instructions.
# verb: bench
# accel: icount
# cpus: 2
. /etc/profiled.sh
. /etc/ctl.sh
work() {
    sh /workloads/default.sh > /out.txt 2>&1
}
measure() {
    echo "event $points $2" > $ctl || exit 1
    start=$(cat /kernel/clock)
    work
    end=$(cat /kernel/clock)
    echo "event * off" > $ctl
    echo "$1 $((end - start))" >> /root/slowdown.txt
}
# The first run is for the hits, which profiled reads. It takes time, so it ends before the others.
profiled_start || exit 2
echo "event $points count" > $ctl || exit 3
work
echo "event * off" > $ctl
profiled_stop || exit 4
measure off off
measure counted count
measure off off
measure recorded record
measure off off
# The ring must have room for all records of the CPU that works, which is the other one.
cpu=$((1 - $(value sampler)))
{
    echo "words-recorded $(value event.$cpu.position-in)"
    echo "ring-words $(value event.$cpu.ring-words)"
} >> /root/slowdown.txt
exit 0
