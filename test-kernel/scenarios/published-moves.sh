# The way published: whoever moves to another CPU publishes there. Nothing of what a CPU publishes is another one's, so next
# to nothing is torn where CPUs take turns (only a look that a turn interrupts).
# accel: icount
# append: way=published
# balanced: profiling.txt
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
echo hz 10000 > $ctl
profiled_start || exit 1
echo start > $ctl
for i in 1 2 3 4 5; do
    dd bs=4k count=3000 < /scheme/zero > /scheme/null 2> /dev/null &
done
wait $!
echo stop > $ctl
profiled_stop || exit 2
for cpu in 1 2 3; do
    value() {
        grep "^cpu.$cpu.$1 " $ctl | cut -d' ' -f2
    }
    [ "$(value taken)" -gt 100 ] || exit 3
    [ "$(($(value lost-torn) * 50))" -lt "$(value taken)" ] || exit 4
done
