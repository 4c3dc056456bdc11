# What a dynamic probe costs for a call: off, counted, and recorded with a stack of 16 frames (`cargo xtask bench kernel
# --filter probes` judges the figures).
# accel: icount
# cpus: 2
# append: event-ring-words=262144
# serial: cost: probe, record, 
echo 320 > /kernel/probe-cost
