# A lock that nobody waits for costs at most 2 instructions more (`cargo xtask bench kernel` judges the figures).
# accel: icount
# cpus: 2
# serial: lock: record, 
echo 640 > /kernel/lock-cost
