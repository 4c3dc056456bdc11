# `kprof-record probe` counts and times the calls of two functions while a command runs. The probes are gone after it,
# also if it is killed.
# accel: icount
# cpus: 4
# probes: *
# serial: probes on 2 functions, 
. /etc/ctl.sh
kprof-record probe --places /root/probes.txt 'file::OpenFile::write' 'syscall::serve' -- \
    dd bs=4k count=100 if=/scheme/zero of=/scheme/null 2> /root/table.txt || exit 1
cat /root/table.txt
# dd's own messages are a few more.
calls=$(sed -n 's/ *\([0-9]*\) .*OpenFile::write$/\1/p' /root/table.txt)
[ "$calls" -ge 100 ] && [ "$calls" -lt 120 ] || exit 4
kprof-record probe --places /root/probes.txt 'syscall::serve' -- sleep 60 &
recorder=$!
while ! kprof-record probe --list --places /root/probes.txt | grep -q serve; do usleep 10000; done
kill -KILL $recorder
wait $recorder
# Killed: the kernel has removed them with the lease.
! kprof-record probe --list --places /root/probes.txt | grep -q serve || exit 2
kprof-record probe --places /root/probes.txt 'no::such::function' -- true && exit 3
exit 0
