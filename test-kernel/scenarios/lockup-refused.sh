# With the trigger `timer` there is no sampler CPU, so `lockup` is refused with the reason, and nothing changes.
# cpus: 1
# append: trigger=timer
# serial: is refused: line 1: `lockup` needs a sampler CPU
. /etc/ctl.sh
echo "lockup 100" > $ctl 2> /dev/null && exit 1
[ -z "$(value lockup-ms)" ] || exit 2
