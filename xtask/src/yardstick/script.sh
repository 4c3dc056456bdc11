#!/bin/busybox sh
# Everyday system calls, the same on the test kernel and on Linux. Init of a machine that holds only busybox.
b=/bin/busybox
if [ ! -e /kernel/exit ]; then
    $b mkdir -p /dev /tmp
    $b mount -t devtmpfs dev /dev
fi
$b mkdir -p /tmp
{
    $b dd if=/dev/zero of=/dev/null bs=512 count=2000
    $b dd if=/dev/zero of=/tmp/file bs=4k count=64
    $b cp /tmp/file /tmp/copy
    $b cmp /tmp/file /tmp/copy
    $b md5sum /tmp/file /tmp/copy
    $b cat /tmp/copy | $b wc -c
    $b ls -l /tmp
    for turn in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        $b true
        $b sh -c 'echo $$ $PPID > /tmp/small'
        $b mv /tmp/small /tmp/other
        $b rm /tmp/other
        $b mkdir /tmp/folder
        $b rmdir /tmp/folder
    done
    $b uname -a
    $b sleep 0.01
    $b rm /tmp/file /tmp/copy
} > /dev/null 2> /dev/null
if [ -e /kernel/exit ]; then
    echo success > /kernel/exit
fi
$b poweroff -f
