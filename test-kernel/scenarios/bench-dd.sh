# Measures how much sampling slows `dd` down, for `cargo xtask bench kernel`. Runs without sampling and at each rate
# take turns.
# cpus: 4
# balanced: profiling.txt
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
profiled_start || exit 1
measure() {
    start=$(cat /kernel/clock)
    dd bs=4k count=${blocks:-30000} < /scheme/zero > /scheme/null 2> /dev/null || exit 2
    end=$(cat /kernel/clock)
    echo "dd $1 $((end - start))" >> /root/dd.txt
}
for round in $(seq "${rounds:-1}"); do
    for hz in 100 1000 100 5000 100; do
        measure off
        echo "hz $hz" > $ctl && echo start > $ctl || exit 3
        measure $hz
        echo stop > $ctl || exit 4
    done
done
measure off
profiled_stop
