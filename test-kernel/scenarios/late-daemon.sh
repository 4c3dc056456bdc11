# A daemon that starts after 3 000 tasks have started and ended gets the names of the tasks that still exist, and the
# settings.
# balanced: profiling.txt
. /etc/profiled.sh
. /etc/ctl.sh
echo "hz 2000" > $ctl
echo "include user" > $ctl
echo "mark before-the-daemon" > $ctl
sleep 10000 &
old=$!
for task in $(seq 3000); do
    (:)
done
# The names did not all fit into the meta stream. The oldest were replaced, and no new one was lost.
[ "$(value meta.overwritten)" -gt 1000 ] || { grep ^meta $ctl; exit 1; }
profiled_start || exit 2
echo start > $ctl
dd bs=4k count=30000 < /scheme/zero > /scheme/null 2> /dev/null
touch-pages 4
echo stop > $ctl
profiled_stop || exit 3
kill $old
file=/root/profiling.txt
grep -q '^# task id=[0-9a-f]* name=sleep' $file || exit 4
grep -q '^# setting .*value=hz%202000$' $file || exit 5
grep -q '^# setting .*value=include%20user$' $file || exit 6
grep -q '^# setting .*value=mode%20drop$' $file || exit 7
grep -q '^# hz 2000$' $file || exit 8
[ "$(grep -c -v '^#' $file)" -gt 10 ] || exit 9
# Every task with a sample has a name.
grep -q '^id[0-9a-f]* ' $file && exit 10
[ "$(value meta.lost)" = 0 ] || exit 11
exit 0
