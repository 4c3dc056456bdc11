# Each recorded hit has its whole stack and is in the file once, also if profiled is killed meanwhile; the sum of the
# weights is exact. The rings are so large that nothing is lost.
# append: event-ring-words=262144
# balanced: profiling.txt
# event: profiling.txt null.write 3000 hits = 3000 recorded + 0 filtered + 0 lost, 12288000 bytes in all; 3000 events
# event: profiling.txt null.write 12288000 bytes of null.write in
# latency: null.write balanced: 3000 hits = 3000 recorded + 0 only counted + 0 lost
. /etc/ctl.sh
# Unlike /etc/profiled.sh this starts few processes, whose names would fill the meta stream, and writes to no null
# device.
start() {
    rm -f /profiled.pid
    profiled --quiet --scheme /scheme/debug --pid-file /profiled.pid &
    profiled=$!
    until read -r pid 2> /error.txt < /profiled.pid && [ "$pid" = "$profiled" ]; do usleep 200000; done
}
# Waits until profiled has acknowledged most of the meta stream. The ring has 4096 words. Each claim adds some 1200, and
# on a busy host each profiled may be killed before it has read them: the oldest accounts would be overwritten.
wait_for_room() {
    unread=4096
    while [ $unread -gt 1200 ]; do
        while read -r key value rest; do
            case $key in
                meta.position-in) unread=$value ;;
                meta.position-out) unread=$((unread - value)) ;;
            esac
        done < $ctl
        [ $unread -le 1200 ] || usleep 100000
    done
}
start
echo "event null.write record" > $ctl
echo start > $ctl
for i in $(seq 1 6); do
    wait_for_room
    dd bs=4k count=250 < /scheme/zero > /scheme/null 2> /dd.txt &
    dd bs=4k count=250 < /scheme/zero > /scheme/null 2> /dd.txt
    wait $!
    kill -KILL $profiled
    wait $profiled
    start
done
echo stop > $ctl
echo "event * off" > $ctl
kill -TERM $profiled
wait $profiled
