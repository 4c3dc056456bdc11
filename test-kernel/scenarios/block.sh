# Three functions and a program read and write two disks. Each request is in the profile once, with its direction, disk,
# bytes and the stack of the code that made it; the numbers are those that the work itself has counted.
# cpus: 4
# append: event-ring-words=131072
# disk: 8
# disk: 4
# block: profiling.txt
# event: profiling.txt block.read 0 lost
# event: profiling.txt block.write 0 lost
# balanced: profiling.txt
. /etc/profiled.sh
. /etc/ctl.sh
# Says what a dd did that began at $begun: POINT DISK REQUESTS BYTES-OF-EACH.
known() {
    echo "known: $1 dd $2 $3 $(($3 * $4)) $(($(now) - begun))"
}
now() {
    cat /kernel/clock
}
profiled_start || exit 1
echo start > $ctl
echo "event block.* record" > $ctl
echo 300 > /kernel/block || exit 2
begun=$(now)
dd if=/dev/vda of=/dev/null bs=8k count=50 skip=3 2> /dev/null || exit 3
known block.read 0 50 8192
begun=$(now)
dd if=/dev/vdb of=/dev/null bs=512 count=70 skip=4000 2> /dev/null || exit 4
known block.read 1 70 512
begun=$(now)
dd if=/dev/zero of=/dev/vdb bs=2k count=30 seek=1024 2> /dev/null || exit 5
known block.write 1 30 2048
# Of a read past the end there is nothing: not an error, and no request.
[ "$(dd if=/dev/vda bs=4k skip=2048 2> /dev/null | wc -c)" = 0 ] || exit 6
# A read over the end is cut there.
begun=$(now)
[ "$(dd if=/dev/vda bs=1M skip=7 count=9 2> /dev/null | wc -c)" = 1048576 ] || exit 7
known block.read 0 16 65536
# A write past the end fails, and so does one that is not whole sectors.
dd if=/dev/zero of=/dev/vda bs=4k count=1 seek=2048 2> /dev/null && exit 8
dd if=/dev/zero of=/dev/vda bs=100 count=1 2> /dev/null && exit 9
echo "event block.* off" > $ctl
echo stop > $ctl
profiled_stop || exit 10
exit 0
