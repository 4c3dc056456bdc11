# The flight recorder. After a panic the serial log has the last samples of every CPU, and they can be folded.
# expect: panic
# serial: ~kprof
# folds: serial.log
ctl=/scheme/debug/ctl-profiling
echo "mode overwrite" > $ctl || exit 1
echo start > $ctl
for i in 1 2 3; do
    (dd bs=4k count=20000 < /scheme/zero > /scheme/null 2> /dev/null) &
done
wait
echo now > /kernel/panic
