# A raw reader runs at the same time as `start`, `freeze`, `thaw` and `stop` of the flight recorder. No position goes
# back, no ring has more words than its capacity, and every record is accounted for.
# append: ring-words=1024
# long: rounds=20
. /etc/ctl.sh
# Gives a command. If a busy host has not run a CPU for more than a second, `freeze` and `stop` return an error, but
# they take effect.
change() {
    echo $1 > $ctl 2> /dev/null || [ "$(value state)" = $2 ] || { echo "$1: state $(value state)"; return 1; }
}
last=0
# Every recorded sample was delivered or overwritten, or is still in the ring.
balances() {
    set -- $(sed -n "s/^cpu.1.\(recorded\|delivered\|overwritten\|in-ring\|position-in\|position-out\|ring-words\) //p" $ctl)
    [ $# = 7 ] && [ $1 = $(($2 + $3 + $4)) ] && [ $(($6 - $7)) -le $5 ] && [ $7 -ge $last ] && last=$7 && return
    grep "^cpu.1" $ctl
    echo "position-out was $last"
    return 1
}
echo "hz 10000" > $ctl
echo "mode overwrite" > $ctl || exit 1
for cpu in 1 2 3; do
    dd bs=4k < /scheme/zero > /scheme/null 2> /dev/null &
    eval "work$cpu=$!"
done
# The raw read is refused while the recorder runs. Otherwise it frees the records that it gets.
while :; do
    cat /scheme/debug/profiling-1
done > /scheme/null 2> /dev/null &
reader=$!
# Continues until both reader and recorder have moved the tail. A busy host may run the sampler only rarely.
for try in $(seq 200); do
    change start running || exit 2
    usleep 20000
    change freeze frozen || exit 3
    balances || exit 4
    change thaw running || exit 5
    usleep 5000
    change stop stopped || exit 6
    balances || exit 7
    [ $try -ge ${rounds:-3} ] && [ "$(value cpu.1.delivered)" -gt 100 ] && [ "$(value cpu.1.overwritten)" -gt 100 ] && break
done
kill -KILL $reader
kill $work1 $work2 $work3
[ "$(value cpu.1.delivered)" -gt 100 ] && [ "$(value cpu.1.overwritten)" -gt 100 ] || { grep ^cpu.1 $ctl; exit 8; }
