# the Redox book's dd: 100 000 blocks of 4 KiB from /scheme/zero to /scheme/null
dd bs=4k count=100000 < /scheme/zero > /scheme/null
