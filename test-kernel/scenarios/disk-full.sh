# A full disk says so: no hang, what was written before is there, room that is freed is room.
# append: ram-fs-mib=4
dd if=/scheme/zero of=/big bs=64k count=100 2> /root/message && exit 1
grep -q "No space left on device" /root/message || exit 2
[ "$(wc -c < /big)" -gt 3000000 ] || exit 3
rm /big
dd if=/scheme/zero of=/small bs=64k count=32 2> /dev/null || exit 4
echo x > /scheme/full && exit 5
exit 0
