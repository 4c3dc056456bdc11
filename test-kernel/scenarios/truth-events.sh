# What is recorded of known writes is exact, and what is sampled of them estimates each task's part without bias. The
# lines `known: TASK HITS BYTES` say what each task writes to /scheme/null: hits of so many bytes each. For
# `cargo xtask truth --events`, with twenty seeds.
# accel: icount
# cpus: 2
# append: event-ring-words=1048576
# known-events: null.write
. /etc/profiled.sh
. /etc/ctl.sh
echo "known: dd 6000 512"
echo "known: busybox 1500 4096"
echo "known: sh 3000 128"
line=$(printf %0127d 0)
for state in count record "every 7" "by-weight 2048"; do
    profiled_start -o /root/${state%% *}.txt || exit 1
    echo "event null.write $state" > $ctl
    dd bs=512 count=6000 if=/scheme/zero of=/scheme/null 2> /dd.txt
    busybox dd bs=4k count=1500 if=/scheme/zero of=/scheme/null 2> /dd.txt
    for number in $(seq 3000); do
        echo $line
    done > /scheme/null
    echo "event null.write off" > $ctl
    profiled_stop || exit 2
done
exit 0
