# One of ten hits is recorded, then hits by weight: the host scales both to the exact totals. The only CPU that hits the
# point is CPU 1. Then kprof-record switches the point on for a command, and off again. The second profile has events
# and no sample: its account balances although the samples of the same boot are in the first one.
# cpus: 2
# append: event-ring-words=65536
# balanced: every.txt
# event: every.txt null.write 5000 hits = 500 recorded + 4500 filtered + 0 lost, 20480000 bytes in all; 500 events
# event: every.txt null.write 20480000 bytes of null.write in
# event: by-weight.txt null.write 20480000 bytes of null.write in
# event: by-weight.txt null.write 5000 hits = 
# event: record.txt null.write 700 hits = 700 recorded + 0 filtered + 0 lost, 2867200 bytes in all; 700 events
. /etc/profiled.sh
. /etc/ctl.sh
for state in "every 10" "by-weight 65536"; do
    profiled_start -o /root/${state%% *}.txt || exit 1
    echo "event null.write $state" > $ctl
    [ "$state" != "every 10" ] || echo start > $ctl
    dd bs=4k count=5000 < /scheme/zero > /scheme/null 2> /dd.txt
    # On a busy host the sampler may not have run yet.
    until [ "$(value cpu.1.taken)" -gt 0 ]; do usleep 1000; done
    echo stop > $ctl
    echo "event * off" > $ctl
    profiled_stop || exit 2
done
kprof-record record --quiet -e null.write -o /root/record.txt -- dd bs=4k count=700 if=/scheme/zero of=/scheme/null ||
    exit 3
[ "$(value point.null.write)" = "bytes off" ] || exit 4
exit 0
