# A hit of a point is short: at most 3 instructions if it is off, 25 if it is counted (`cargo xtask bench kernel` judges
# the figures).
# accel: icount
# cpus: 2
# serial: point: count, 
echo 640 > /kernel/points
