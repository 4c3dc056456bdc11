# A reader passes addresses that are not its memory. Each such read is refused and consumes no record, also if a part of
# the records was copied first. The next read gets all of them.
. /etc/ctl.sh
echo "hz 5000" > $ctl
for cpu in 1 2 3; do
    dd bs=4k < /scheme/zero > /scheme/null 2> /dev/null &
    eval "work$cpu=$!"
done
bad-buffer || exit 1
kill $work1 $work2 $work3
set -- $(sed -n "s/^cpu.1.\(recorded\|delivered\|in-ring\) //p" $ctl)
[ $# = 3 ] && [ $1 = $2 ] && [ $3 = 0 ] || { grep ^cpu.1 $ctl; exit 2; }
