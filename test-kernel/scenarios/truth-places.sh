# Counts with the instruction clock how long the workload truth-entries is in each place that it publishes. Nothing is
# sampled.
# verb: truth
# accel: icount
# append: trigger=published
# serial: places: [interrupt-240]
# Sampling runs, but with only one tick per second. It is needed because the kernel counts its events by task only
# during sampling, and this counting takes instructions.
echo hz 1 > /scheme/debug/ctl-profiling
echo start > /scheme/debug/ctl-profiling
sh /workloads/truth-entries.sh
echo stop > /scheme/debug/ctl-profiling
