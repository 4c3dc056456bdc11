# NMIs at every instruction of a call tree and of the entry stubs, one after the other. None is lost, and all work
# continues. `cargo xtask sweep` runs this too, and checks each instruction and its stack.
# verb: sweep
# accel: icount
# cpus: 2
# append: ring-words=4194304
# balanced: profiling.txt
. /etc/profiled.sh
. /etc/ctl.sh
for _ in 1 2 3; do echo tree > /kernel/sweep || exit 1; done
echo vectors > /kernel/sweep || exit 2
# Each is run twice, because in QEMU an NMI is sometimes an instruction late.
for kind in call page divide breakpoint undefined protection call page divide breakpoint undefined protection; do
    sweep-entries $kind 1 2000 || exit 3
done
cat $ctl > /root/ctl.txt
[ "$(value cpu.1.taken)" -gt 20000 ] || exit 4
[ "$(value cpu.1.taken)" = "$(value cpu.1.sent)" ] || exit 5
[ "$(value cpu.1.lost-full)$(value cpu.1.lost-nested)" = 00 ] || exit 6
profiled_start || exit 7
profiled_stop || exit 8
