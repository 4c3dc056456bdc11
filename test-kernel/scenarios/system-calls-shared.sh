# The same as system-calls, in the shared folder, where the host's file system answers through 9p.
# same-as-host: syscall-check
mkdir /root/check && cd /root/check && syscall-check > /root/syscall-check.txt 2>&1
