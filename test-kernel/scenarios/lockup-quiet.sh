# No lockup is reported while there is none: with the mix of the storm, and with programs that only compute. One that is
# planted at the end shows that they were looked for. `cargo xtask lockups` does the same for longer.
# run: load=storm
# run: load=user
# long: seconds=5
# accel: icount-8ns
# append: instruction-ns=8
# limit: 14400
# lockups: serial.log 200
. /etc/ctl.sh
echo "mode overwrite" > $ctl || exit 1
echo "hz 250" > $ctl || exit 2
echo "lockup 200" > $ctl || exit 2
echo start > $ctl
: > /root/wrong.txt
case $load in
storm) timeout ${seconds:-1} sh /workloads/storm.sh ;;
user)
    for job in 1 2 3; do
        timeout ${seconds:-1} sh -c 'while true; do :; done' &
    done
    wait
    ;;
*) exit 3 ;;
esac
# While the programs are killed, one that is in a long call has a CPU to itself: kernel code of one task, and nothing
# else, for longer than the threshold. That is a lockup by definition, and it depends on the order of the kills.
echo "lockup off" > $ctl || exit 6
for process in $(cat /kernel/processes); do
    [ "$process" -le 1 ] || [ "$process" = $$ ] || kill -KILL "$process" 2> /dev/null
done
usleep 500000
echo "lockup 200" > $ctl || exit 7
echo "planted interrupts-off 600" > /kernel/stuck || exit 4
echo stop > $ctl
[ ! -s /root/wrong.txt ] || exit 5
