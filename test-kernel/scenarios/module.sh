# Code that is loaded at run time is a separate image. The profile has its record, its functions have their names, and
# stacks continue through it to the kernel code that called it.
# accel: icount
# cpus: 2
# balanced: profiling.txt
# module: ;test_kernel::workload::module;module_main;
# module: test_module::module_mix;test_module::module_stir
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
profiled_start || exit 1
echo start > $ctl
echo 2000 > /kernel/module || exit 2
echo stop > $ctl
profiled_stop || exit 3
grep -q '^# image .*load=ffffffffa0000000 .*name=module$' /root/profiling.txt || exit 4
grep -q '^# image .*name=kernel$' /root/profiling.txt || exit 5
