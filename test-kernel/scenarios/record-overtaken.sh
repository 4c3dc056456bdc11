# kprof-record beside profiled cannot write for so long that the ring comes round: its disk is full. What it has not
# copied by then is lost in its account, the file says so, and it goes on when there is space.
# accel: icount
# cpus: 3
# append: ram-fs-mib=3 ring-words=8192
# balanced: profiling.txt
# balanced: overtaken.txt
. /etc/profiled.sh
profiled_start || exit 1
kprof-record start || exit 2
cat > /work.sh <<'END'
zero() {
    dd if=/scheme/zero of=$1 bs=4k count=$2 2> /dev/null
}
zero /scheme/null 100000
zero /filler 100000
zero /scheme/null 1000000
rm /filler
zero /scheme/null 200000
END
is_overtaken() {
    grep -q ' lost-full=0 lost-nested=0 lost-torn=0 .*lost-overtaken=[1-9]' /root/account.txt
}
for try in 1 2 3; do
    rm -f /overtaken.txt /overtaken.txt.old
    kprof-record -o /overtaken.txt --hz 1000 -- sh /work.sh 2> /root/talk.txt || { cat /root/talk.txt; exit 3; }
    grep -q ', [1-9][0-9]* lost$' /root/talk.txt || { cat /root/talk.txt; exit 4; }
    grep -q 'balance' /root/talk.txt && { cat /root/talk.txt; exit 5; }
    grep '^# account' /overtaken.txt > /root/account.txt
    is_overtaken && break
    # profiled writes to the host's folder. A busy host makes it wait for so long that its ring is full, and a full ring
    # is not written over. Then this shows nothing, and is tried again.
    grep -q ' lost-full=[1-9]' /root/account.txt || break
done
is_overtaken || { cat /root/account.txt; exit 6; }
grep 'lost-overtaken=[1-9]' /root/account.txt | grep -q irq-on && exit 10
grep -q 'reason=' /overtaken.txt && exit 7
kprof-record stop && profiled_stop || exit 8
grep -q 'lost-overtaken' /root/profiling.txt && exit 9
cp /overtaken.txt /root/
exit 0
