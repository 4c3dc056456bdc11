# A panic stops all CPUs, prints the reason and a back trace with names, and has its own exit code.
# expect: panic
# serial: asked for: now
# serial: PANIC on CPU
# serial: syscall_enter
(while true; do :; done) &
(dd if=/scheme/zero of=/scheme/null bs=4k 2> /dev/null) &
echo now > /kernel/panic
