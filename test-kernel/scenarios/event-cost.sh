# What an event of each kind costs: off, counted, sampled and not chosen, and recorded with a stack of 16 frames. All
# records fit into the ring (`cargo xtask bench kernel --filter overhead` judges the figures).
# accel: icount
# cpus: 2
# append: event-ring-words=262144
# serial: cost: page fault, record, 
. /etc/ctl.sh
echo 320 > /kernel/event-cost || exit 1
for cpu in 0 1; do
    [ "$(value event.$cpu.position-in)" -lt "$(value event.$cpu.ring-words)" ] || exit 2
done
exit 0
