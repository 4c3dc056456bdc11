# profiled is killed twenty times with SIGKILL and started again on the same file, which then has every sample once.
# balanced: profiling.txt
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
profiled_start || exit 1
echo start > $ctl
for i in $(seq 1 20); do
    dd bs=4k count=500 < /scheme/zero > /scheme/null 2> /dev/null
    usleep 60000
    kill -KILL $profiled
    wait $profiled
    profiled_start || exit 2
done
echo stop > $ctl
profiled_stop || exit 3
