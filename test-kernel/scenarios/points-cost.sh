# A hit of a point is short: at most 3 instructions if it is off, 25 if it is counted, 400 if it is recorded with a
# stack of 16 frames (`cargo xtask bench kernel` judges the figures).
# accel: icount
# cpus: 2
# serial: point: record, 
echo 640 > /kernel/points
