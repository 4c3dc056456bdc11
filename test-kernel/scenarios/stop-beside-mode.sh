# `stop` beside `mode`, from two processes at once, again and again: sampling is stopped afterwards, whoever came first,
# and every record is accounted for.
ctl=/scheme/debug/ctl-profiling
value() {
    sed -n "s/^$1 //p" $ctl
}
# What was recorded was delivered, overwritten, or is there.
balances() {
    for cpu in 1 2 3; do
        set -- $(sed -n "s/^cpu.$cpu.\(recorded\|delivered\|overwritten\|in-ring\|position-in\|position-out\|ring-words\) //p" $ctl)
        [ $# = 7 ] && [ $1 = $(($2 + $3 + $4)) ] && [ $(($6 - $7)) -le $5 ] && continue
        grep "^cpu.$cpu" $ctl
        return 1
    done
}
echo "hz 10000" > $ctl
dd bs=4k < /scheme/zero > /scheme/null 2> /dev/null &
work=$!
for try in $(seq 15); do
    for mode in overwrite drop; do
        echo start > $ctl || exit 1
        usleep 2000
        echo "mode $mode" > $ctl &
        change=$!
        # Where a busy host has let a CPU wait for more than a second both are refused: stopped it is all the same.
        echo stop > $ctl 2> /dev/null
        wait $change && { [ "$(value mode)" = $mode ] || exit 2; }
        [ "$(value state)" = stopped ] || { value state; exit 3; }
        [ "$(value mode)" = $mode ] || echo "mode $mode" > $ctl || exit 4
        before=$(value cpu.1.sent)
        balances || exit 5
        [ $mode = drop ] && echo "stop-beside-mode: round $try"
        usleep 2000
        [ "$(value cpu.1.sent)" = "$before" ] || exit 6
    done
done
kill $work
[ "$(value cpu.1.recorded)" -gt 100 ] || exit 7
