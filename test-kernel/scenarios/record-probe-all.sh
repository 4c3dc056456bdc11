# kprof-record probe puts probes on all functions at once, and no count is missing.
# verb: storm
# accel: icount
# cpus: 3
# probes: *
work="dd if=/scheme/zero of=/scheme/null bs=4k count=1000"
kprof-record probe --places /root/probes.txt -- $work > /root/all.txt 2>&1 || { cat /root/all.txt; exit 1; }
head -n 20 /root/all.txt
set -- $(grep 'test_kernel::fs::file::OpenFile>*::write$' /root/all.txt)
[ "${1:-0}" -ge 1000 ] || exit 2
