# How much longer the default workload takes if allocations are sampled at one per 64 KiB, if all points are counted,
# and if all hits are recorded, for `cargo xtask bench kernel`. Runs in turns, on one CPU that counts instructions.
# verb: bench
# accel: icount
# cpus: 2
. /etc/ctl.sh
measure() {
    echo "event $2" > $ctl
    start=$(cat /kernel/clock)
    sh /workloads/default.sh > /out.txt 2>&1
    end=$(cat /kernel/clock)
    echo "event * off" > $ctl
    echo "$1 $((end - start))" >> /root/slowdown.txt
}
measure warm "* off"
measure off "* off"
measure heap "heap.* by-weight 65536"
measure off "* off"
measure counted "* count"
measure off "* off"
measure recorded "* record"
measure off "* off"
exit 0
