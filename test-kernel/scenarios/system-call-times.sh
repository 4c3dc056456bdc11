# Each system call is a hit of the point of its number, with the time until its end, also if it fails or waits.
# accel: icount
# balanced: profiling.txt
# latency: syscall.mkdir 20 hits
# latency: syscall.rmdir 30 hits
# latency: syscall.mkdir balanced: 20 hits = 0 recorded + 20 only counted + 0 lost
# latency: syscall.clock_nanosleep 536870912 to 1073741823            2  100.00
# latency: syscall.other 0 lost
. /etc/profiled.sh
. /etc/ctl.sh
profiled_start || exit 2
echo start > $ctl
echo "event syscall.* count" > $ctl
for number in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do
    mkdir /known-$number || exit 3
    rmdir /known-$number || exit 4
    if [ $number -ge 10 ] && rmdir /known-$number 2> /dev/null; then exit 5; fi
done
sleep 0.6
sleep 0.6
echo "event syscall.* off" > $ctl
echo stop > $ctl
mkdir /unknown && rmdir /unknown
profiled_stop || exit 6
exit 0
