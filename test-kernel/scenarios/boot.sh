# The kernel boots, runs init, and has its file systems and devices.
# serial: smp: 4 CPUs run
set -e
[ "$(cat /boot/syms.txt | grep -c kmain)" -ge 1 ]
[ "$(dd if=/scheme/zero bs=1000 count=3 2>/dev/null | wc -c)" = 3000 ]
echo text > /root/file
[ "$(cat /root/file)" = text ]
mkdir -p /a/b && echo deep > /a/b/c && [ "$(find /a -name c)" = /a/b/c ]
ls /scheme/debug | grep -q ctl-profiling
