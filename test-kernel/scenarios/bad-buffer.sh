# A reader passes addresses that are not its memory. Each such read is refused and consumes no record, also if a part of
# the records was copied first. The next read gets all of them.
. /etc/ctl.sh
echo "hz 5000" > $ctl
dd bs=4k < /scheme/zero > /scheme/null 2> /dev/null &
work=$!
bad-buffer || exit 1
kill $work
set -- $(sed -n "s/^cpu.1.\(recorded\|delivered\|in-ring\) //p" $ctl)
[ $# = 3 ] && [ $1 = $2 ] && [ $3 = 0 ] || { grep ^cpu.1 $ctl; exit 2; }
