# How much longer the default workload takes if allocations are sampled at one per 64 KiB, for `cargo xtask bench
# kernel`. Runs in turns, on one CPU that counts instructions.
# verb: bench
# accel: icount
# cpus: 2
. /etc/ctl.sh
measure() {
    echo "event heap.* $2" > $ctl
    start=$(cat /kernel/clock)
    sh /workloads/default.sh > /out.txt 2>&1
    end=$(cat /kernel/clock)
    echo "heap $1 $((end - start))" >> /root/heap.txt
}
measure warm off
measure off off
measure sampled "by-weight 65536"
measure off off
exit 0
