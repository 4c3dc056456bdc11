# The disk becomes full while profiled writes. It waits, continues when there is free space, and no sample is lost.
# append: ram-fs-mib=3
# balanced: profiling.txt
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
profiled_start -o /profiling.txt || exit 1
echo "hz 2000" > $ctl
echo start > $ctl
dd if=/scheme/zero of=/filler bs=4k count=100000 2> /dev/null
for i in 1 2 3 4 5 6 7 8; do
    dd bs=4k count=3000 < /scheme/zero > /scheme/null 2> /dev/null
done
usleep 300000
kill -0 $profiled || exit 2
rm /filler
usleep 300000
echo stop > $ctl
profiled_stop || exit 3
cp /profiling.txt /root/profiling.txt
