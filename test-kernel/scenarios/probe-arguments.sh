# Arguments and conditions of probes: each record has the length of its write, and only the writes that meet the
# condition are counted.
# accel: icount
# cpus: 3
# probes: *file::*
places=/root/probes.txt
write='test_kernel::fs::file::OpenFile>*::write'
# The registers of `OpenFile::write`: where its result goes, itself, and the address and the length of the buffer.
calls() {
    kprof-record probe --places $places "$@" > /root/talk.txt 2>&1 || { cat /root/talk.txt; exit 1; }
    cat /root/talk.txt
    set -- $(grep " <*$write\$" /root/talk.txt)
    calls=${1:-0}
}
cat > /root/work.sh <<'W'
dd if=/scheme/zero of=/scheme/null bs=5000 count=300
dd if=/scheme/zero of=/scheme/null bs=100 count=200
W
calls OpenFile::write --if 'arg4 == 5000' -- sh /root/work.sh
[ $calls = 300 ] || exit 2
calls OpenFile::write --if 'arg4:u16 > 4999' --if 'arg4 & 0x1000' -- sh /root/work.sh
[ $calls = 300 ] || exit 3
calls OpenFile::write --if 'arg4 == 4999' -- sh /root/work.sh
[ $calls = 0 ] || exit 4

calls OpenFile::write --args u64,u64,u64,u32 --if 'arg4 >= 100' -o /root/calls.txt -- sh /root/work.sh
with() {
    grep '^!probe\.' /root/calls.txt | cut -d ' ' -f 6 | grep -c "^ffff[0-9a-f]*,ffff[0-9a-f]*,[0-9a-f]*,$1\$"
}
[ "$(with 1388)" = 300 ] || exit 5
[ "$(with 64)" -ge 200 ] || exit 6
[ "$(grep -c '^!probe\.' /root/calls.txt)" = $calls ] || exit 7
grep -q "^$calls recorded hits of points to /root/calls.txt, " /root/talk.txt || exit 8
kprof-record probe --list --places $places | grep '^no function has a probe$' || exit 9
. /etc/ctl.sh
echo 'probe 1000 if arg1 < 0' > $ctl 2> /dev/null && exit 10
exit 0
