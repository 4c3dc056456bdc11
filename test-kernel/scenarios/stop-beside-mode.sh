# Two processes give `stop` and `mode` at the same time, many times. Sampling is stopped afterwards, in whatever order
# they came, and every record is accounted for.
# long: rounds=15
. /etc/ctl.sh
# Every recorded sample was delivered or overwritten, or is still in the ring.
balances() {
    for cpu in 1 2 3; do
        set -- $(sed -n "s/^cpu.$cpu.\(recorded\|delivered\|overwritten\|in-ring\|position-in\|position-out\|ring-words\) //p" $ctl)
        [ $# = 7 ] && [ $1 = $(($2 + $3 + $4)) ] && [ $(($6 - $7)) -le $5 ] && continue
        grep "^cpu.$cpu" $ctl
        return 1
    done
}
# Samples recorded by all CPUs.
recorded() {
    echo $(($(sed -n "s/^cpu.[0-9]*.recorded \(.*\)/\1 +/p" $ctl) 0))
}
echo "hz 10000" > $ctl
dd bs=4k < /scheme/zero > /scheme/null 2> /dev/null &
work=$!
for try in $(seq ${rounds:-3}); do
    for mode in overwrite drop; do
        known=$(recorded)
        echo start > $ctl || exit 1
        # Both commands come while `dd` is sampled, however late a busy host lets the sampler run.
        while [ "$(recorded)" = $known ]; do usleep 100; done
        echo "mode $mode" > $ctl &
        change=$!
        # If a busy host has not run a CPU for more than a second, both return an error, but sampling is stopped.
        echo stop > $ctl 2> /dev/null
        wait $change && { [ "$(value mode)" = $mode ] || exit 2; }
        [ "$(value state)" = stopped ] || { value state; exit 3; }
        # The command is repeated then, until the CPU has run.
        for again in $(seq 30); do
            [ "$(value mode)" = $mode ] && break
            echo "mode $mode" > $ctl 2> /dev/null
        done
        [ "$(value mode)" = $mode ] || exit 4
        before=$(value cpu.1.sent)
        balances || exit 5
        [ $mode = drop ] && echo "stop-beside-mode: round $try"
        usleep 2000
        [ "$(value cpu.1.sent)" = "$before" ] || exit 6
    done
done
kill $work
