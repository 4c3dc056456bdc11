# How long the workload truth-entries is in each place that it publishes, counted by the instruction clock; nothing is
# sampled.
# verb: truth
# accel: icount
# append: way=published
# serial: places: [interrupt-240]
# The kernel counts its events by context only while sampling runs, which takes instructions: so it runs, at a tick a
# second.
echo hz 1 > /scheme/debug/ctl-profiling
echo start > /scheme/debug/ctl-profiling
sh /workloads/truth-entries.sh
echo stop > /scheme/debug/ctl-profiling
