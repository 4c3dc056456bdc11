# A kernel without the feature runs, and has no profiler.
# kernel: off
[ -z "$(ls /scheme/debug)" ] || exit 1
[ "$(seq 1 100 | awk '{ sum += $1 } END { print sum }')" = 5050 ]
