# With rotation files stay below their size limit, and each can be read separately.
# folds: profiling.txt.2
# folds: profiling.txt.1
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
profiled_start --max-size 12K --rotate 9 || exit 1
echo "hz 2000" > $ctl
echo start > $ctl
# The oldest files may have only names and points; the newest one may have just begun. A busy host takes few samples.
until [ -f /root/profiling.txt.5 ]; do
    dd bs=4k count=4000 < /scheme/zero > /scheme/null 2> /dev/null
done
echo stop > $ctl
profiled_stop || exit 2
for file in /root/profiling.txt /root/profiling.txt.1; do
    head -n 1 $file | grep -q kprof-profile || exit 3
    [ "$(wc -c < $file)" -le 28000 ] || exit 4
done
