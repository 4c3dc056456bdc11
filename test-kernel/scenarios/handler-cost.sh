# The handler is short: at most 120 instructions, and 12 for each frame (`cargo xtask bench kernel` judges the figures).
# accel: icount
# cpus: 2
# serial: handler: 
echo 640 > /kernel/handler
