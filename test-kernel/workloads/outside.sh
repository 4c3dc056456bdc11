# the default workload, then work with waits between, for `cargo xtask truth --outside`
sh /workloads/default.sh
i=0
while [ $i -lt 40 ]; do
    i=$((i + 1))
    ls /workloads > /scheme/null
    usleep 7000
done
