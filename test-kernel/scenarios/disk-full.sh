# Writing to a full disk gives an error and does not hang. Earlier data stays, and space that is freed can be used
# again.
# append: ram-fs-mib=4
dd if=/scheme/zero of=/big bs=64k count=100 2> /root/message && exit 1
grep -q "No space left on device" /root/message || exit 2
[ "$(wc -c < /big)" -gt 3000000 ] || exit 3
rm /big
dd if=/scheme/zero of=/small bs=64k count=32 2> /dev/null || exit 4
echo x > /scheme/full && exit 5
exit 0
