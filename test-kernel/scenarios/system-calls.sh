# System calls give the same results and errors as Linux. The same program runs on the host for comparison.
# same-as-host: syscall-check
# serial: system call 100000 is not known here: ENOSYS
mkdir /check && cd /check && syscall-check > /root/syscall-check.txt 2>&1
