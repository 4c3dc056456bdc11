# An allocation or a free that is counted, or sampled and not chosen, costs at most 12 instructions more (`cargo xtask
# bench kernel` judges the figures).
# accel: icount
# cpus: 2
# append: event-ring-words=1048576
# serial: heap: recorded, 
echo 4000 > /kernel/heap-cost
