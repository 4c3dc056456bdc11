# A CPU does not answer NMIs. `stop` ends and names the CPU, sampling has stopped, and `mode` is refused and changes
# nothing. After the CPU was taken offline, `stop` and `mode` work. When it is back, its ticks are taken and the account
# balances.
# balanced: profiling.txt
# serial: is refused: line 1: cpu 2 has not taken
. /etc/profiled.sh
. /etc/ctl.sh
pending_is() {
    [ "$(value cpu.2.sent)" = $(($(value cpu.2.taken) + $(value cpu.2.coalesced) + $(value cpu.2.pending))) ]
}
work() {
    for cpu in 1 2 3; do
        dd bs=4k count=10000 < /scheme/zero > /scheme/null 2> /dev/null &
        eval "job$cpu=$!"
    done
    wait $job1 $job2 $job3
}
until_is_pending() {
    for try in $(seq 100); do
        [ "$(value cpu.2.pending)" -gt 2 ] && return
        work
    done
    return 1
}
echo "include idle" > $ctl
profiled_start || exit 1
echo start > $ctl
work
echo 2 > /kernel/deaf || exit 2
until_is_pending || exit 3
start=$(cat /kernel/clock)
echo "mode overwrite" > $ctl 2> /dev/null && exit 4
[ "$(value mode)" = drop ] && [ "$(value state)" = running ] || exit 5
echo stop > $ctl 2> /dev/null && exit 6
end=$(cat /kernel/clock)
echo "deaf-cpu: mode and stop have ended after $(((end - start) / 1000000)) ms"
[ "$(value state)" = stopped ] && pending_is || exit 7
echo 2 > /kernel/offline || exit 8
echo start > $ctl || exit 9
before=$(value cpu.2.sent)
work
echo stop > $ctl || exit 10
[ "$(value cpu.2.sent)" = "$before" ] && [ "$(value cpu.2.pending)" -gt 2 ] && pending_is || exit 11
echo "mode overwrite" > $ctl && echo "mode drop" > $ctl || exit 12
# The CPU is back, so the sampler signals its pending ticks.
echo all > /kernel/deaf
echo 2 > /kernel/online || exit 13
for try in $(seq 100); do
    [ "$(value cpu.2.pending)" = 0 ] && break
    usleep 100000
done
[ "$(value cpu.2.pending)" = 0 ] && pending_is || exit 14
echo start > $ctl || exit 15
for try in $(seq 100); do
    [ "$(value cpu.2.sent)" -gt "$before" ] && break
    work
done
echo stop > $ctl || exit 16
[ "$(value cpu.2.sent)" -gt "$before" ] || exit 17
profiled_stop || exit 18
