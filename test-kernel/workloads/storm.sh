# the default mix, repeated, with broken frame-pointer chains in between; lists wrong results in /root/wrong.txt. If
# there is /root/probes.txt, its functions get probes and lose them, again and again
. /etc/ctl.sh
check() {
    "$@" > /dev/null 2>> /root/storm.err || echo "wrong: $*" >> /root/wrong.txt
}
chains() {
    while true; do echo 50 > /kernel/chains; done
}
faults() {
    while true; do check touch-pages 4; done
}
processes() {
    while true; do [ "$(echo a b | cut -d' ' -f2)" = b ] || echo "wrong: cut" >> /root/wrong.txt; done
}
copies() {
    while true; do
        check cp /bin/busybox /storm-copy
        check cmp /bin/busybox /storm-copy
        check rm /storm-copy
    done
}
blocks() {
    while true; do check dd bs=4k count=20000 if=/scheme/zero of=/scheme/null; done
}
kernel() {
    while true; do
        echo 10 > /kernel/heap
        echo 100 > /kernel/pages
        echo 2000 > /kernel/switch
    done
}
probes() {
    probe_commands /root/probes.txt > /probes
    while true; do
        while read line; do
            echo "$line" > $ctl || echo "wrong: $line" >> /root/wrong.txt
        done < /probes
        echo unprobe all > $ctl || echo "wrong: unprobe" >> /root/wrong.txt
        echo round >> /root/probed.txt
    done
}
[ ! -f /root/probes.txt ] || probes &
chains &
chains &
faults &
processes &
copies &
blocks &
kernel &
wait
