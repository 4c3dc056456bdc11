# kprof-record probe: the calls are those of the work, a wrong file is refused, and no probe is left at any end.
# accel: icount
# cpus: 3
# probes: *file::*
. /etc/ctl.sh
. /etc/profiled.sh
places=/root/probes.txt
work="dd if=/scheme/zero of=/scheme/null bs=4k count=1000"
# The system call and the functions below it; kprof-record writes to ctl itself, and dd to its standard error.
count() {
    kprof-record probe --places $places OpenFile::write syscall::file::sync -- $work > /root/talk.txt 2>&1 || exit $1
    cat /root/talk.txt
    set -- $(grep 'test_kernel::fs::file::OpenFile>*::write$' /root/talk.txt)
    [ "${1:-0}" -ge 1000 ] && [ "$1" -lt 1200 ] && [ "$2" -gt "$1" ] || exit 2
    grep -q '^1 without a call' /root/talk.txt || exit 3
    grep -q lost /root/talk.txt && exit 4
}
count 1
# Beside profiled, which gets the same counts.
profiled_start || exit 5
count 6
profiled_stop
kprof-record probe --list --places $places > /root/list.txt || exit 7
grep -q '^no function has a probe$' /root/list.txt || { cat /root/list.txt; exit 8; }

# Of another build, and without a build id.
sed 's/^# build-id .*/# build-id 1234/' $places > /other.txt
kprof-record probe --force --places /other.txt sync -- true 2> /root/talk.txt && exit 9
grep -q 'is of build 1234' /root/talk.txt || { cat /root/talk.txt; exit 10; }
sed 's/^# build-id .*/# build-id -/' $places > /other.txt
kprof-record probe --places /other.txt sync -- true 2> /root/talk.txt && exit 11
grep -q 'Give --force' /root/talk.txt || { cat /root/talk.txt; exit 12; }
kprof-record probe --force --places /other.txt sync -- true 2> /root/talk.txt || { cat /root/talk.txt; exit 13; }
# An exit where there is none: the kernel refuses it, and the probe before it is removed.
sed 's/^\([0-9a-f]*\) [^ ]* \(test_kernel::syscall::file::sync\)$/\1 1 \2/' $places > /other.txt
kprof-record probe --places /other.txt OpenFile::write file::sync -- true 2> /root/talk.txt && exit 14
grep -q 'an exit is neither' /root/talk.txt || { cat /root/talk.txt; exit 15; }
kprof-record probe --places $places OpenFile::write -- /no/such/program && exit 16

# The kernel removes the probes of a recorder that was killed.
kprof-record probe --places $places OpenFile::write > /root/killed.txt 2>&1 &
recorder=$!
listed='^count  *[0-9a-f]*  <*test_kernel::fs::file::OpenFile>*::write$'
until kprof-record probe --list --places $places > /root/list.txt && grep -q "$listed" /root/list.txt; do
    kill -0 $recorder || exit 21
    usleep 10000
done
kill -9 $recorder
wait $recorder
kprof-record probe --list --places $places | grep '^no function has a probe$' || exit 22
set -- $(grep "$listed" /root/list.txt)
kprof-record stat -e probe.$2 -- $work > /root/after.txt 2>&1 || exit 17
grep "probe.$2" /root/after.txt
grep -q "^ *0  probe.$2 " /root/after.txt || exit 18

exit 0
