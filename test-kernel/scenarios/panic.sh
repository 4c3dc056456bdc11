# A panic stops all CPUs, says why, shows a back trace with names, and has an exit code of its own.
# expect: panic
# serial: asked for: now
# serial: PANIC on CPU
# serial: syscall_enter
(while true; do :; done) &
(dd if=/scheme/zero of=/scheme/null bs=4k 2> /dev/null) &
echo now > /kernel/panic
