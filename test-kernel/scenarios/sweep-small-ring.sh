# NMIs in the handler of an NMI, as in sweep-handler, with a ring so small that many records wrap around its end. First
# the ring is overwritten, then it is full, then records are read as they come.
# verb: sweep
# accel: icount
# cpus: 2
# limit: 1200
# append: ring-words=1024
# serial: nested: 
. /etc/ctl.sh
sweep() {
    for order in "$@"; do echo "$order" > /kernel/sweep || return 1; done
}
echo "mode overwrite" > $ctl && sweep "steps on" "dice 1000" || exit 1
for who in idle user; do echo "include $who" > $ctl && sweep "dice 1000" || exit 2; done
sweep-entries spin 1500 1520 || exit 3
[ "$(value cpu.1.overwritten)" -gt 1000 ] && [ "$(value cpu.1.lost-nested)" -gt 1000 ] || exit 4
echo "mode drop" > $ctl && sweep "dice 1000" "registers 1000" || exit 5
[ "$(value cpu.1.lost-full)" -gt 1000 ] || exit 6
[ "$(value cpu.1.sent)" = $(($(value cpu.1.taken) + $(value cpu.1.coalesced))) ] || exit 7
[ "$(value cpu.1.recorded)" = $(($(value cpu.1.overwritten) + $(value cpu.1.in-ring))) ] || exit 8
sweep "drain on" "dice 1000" "registers 1000" report || exit 9
