# An allocation or a free that is counted, or sampled and not chosen, costs at most 12 instructions more (`cargo xtask
# bench kernel` judges the figures).
# accel: icount
# cpus: 2
# serial: heap: recorded, 
echo 640 > /kernel/heap-cost
