# No sample is lost at 10 kHz on three CPUs with the default ring while profiled writes to disk.
# accel: icount
# cpus: 4
# append: hz=10000
# balanced: profiling.txt
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
profiled_start || exit 1
echo start > $ctl
dd bs=4k count=20000 < /scheme/zero > /scheme/null 2> /dev/null &
copy=$!
touch-pages 20 &
pages=$!
echo 10 > /kernel/heap
wait $copy $pages
echo stop > $ctl
profiled_stop || exit 2
! grep -q '^cpu.*.lost-full [1-9]' $ctl || exit 3
