# Every setting that ctl can change during sampling is changed, and each change is seen to take effect.
# accel: icount
# cpus: 4
# balanced: profiling.txt
. /etc/profiled.sh
. /etc/ctl.sh
# Does this many rounds of work on all three CPUs.
work() {
    for cpu in 1 2 3; do
        dd bs=4k count=$((100 * $1)) < /scheme/zero > /scheme/null 2> /dev/null &
        eval "job$cpu=$!"
    done
    echo $1 > /kernel/heap
    wait $job1 $job2 $job3
}
# The number of ticks of CPU 1 in ten milliseconds of work, by the guest's clock.
rate() {
    from=$(value cpu.1.sent) start=$(cat /kernel/clock)
    work ${1:-4}
    end=$(cat /kernel/clock) to=$(value cpu.1.sent)
    echo $(((to - from) * 1000000000 / (end - start)))
}
is_about() {
    [ "$1" -ge $(($2 * 8 / 10)) ] && [ "$1" -le $(($2 * 12 / 10)) ] && return
    echo "ctl: $1 ticks a second, asked for $2"
    return 1
}

profiled_start || exit 1
echo start > $ctl

# The rate.
echo hz 2000 > $ctl
is_about $(rate) 2000 || exit 2
echo hz 8000 > $ctl
is_about $(rate) 8000 || exit 3

# The filter.
[ $(value cpu.1.recorded-user) = 0 ] || exit 4
echo include user > $ctl
touch-pages 4
work 2
[ $(($(value cpu.1.recorded-user) + $(value cpu.2.recorded-user) + $(value cpu.3.recorded-user))) -gt 0 ] || exit 5
echo exclude user > $ctl
echo include idle > $ctl
usleep 20000
[ $(value cpu.2.recorded-idle) -gt 0 ] || exit 6
echo exclude idle > $ctl
before=$(value cpu.2.recorded-idle)
usleep 20000
[ $(value cpu.2.recorded-idle) = $before ] || exit 7

# The CPU mask.
echo cpus 1 > $ctl
before=$(value cpu.2.sent) one=$(value cpu.1.sent)
work 2
[ $(value cpu.2.sent) = $before ] && [ $(value cpu.1.sent) -gt $one ] || exit 8
echo cpus all > $ctl
work 2
[ $(value cpu.2.sent) -gt $before ] || exit 9

# The depth. With a small one there are truncated stacks.
echo depth 2 > $ctl
work 4
echo depth 64 > $ctl

# The mode, in both directions. Records that are not acknowledged are overwritten, and the account shows this.
echo mode overwrite > $ctl || exit 10
[ $(value mode) = overwrite ] && [ $(value state) = running ] || exit 11
work 2
echo mode drop > $ctl || exit 12
[ $(value state) = running ] || exit 13
work 2

# The backoff. At the highest rate, handlers that walk user frames take more than 5 % of the time.
echo include user > $ctl
echo hz 100000 force > $ctl
echo backoff on > $ctl
for try in $(seq 16); do
    [ -n "$(value hz-now)" ] && break
    work 20
done
[ $(value hz) = 100000 ] && [ "$(value hz-now)" -lt 100000 ] || exit 14

echo stop > $ctl
profiled_stop || exit 15
grep -v '^#' /root/profiling.txt | grep -q ' fffffffffffff401$' || exit 16
grep -q '^# setting .*value=hz%2050000' /root/profiling.txt || exit 17
grep -q '^# setting .*value=mode%20overwrite' /root/profiling.txt || exit 18
