# kprof-profile 1
# tsc-hz 1000000000
# boot 7
# cpus 2
# sampler 1
# anchor kmain=ffffffff80001000
# batch cpu=0 from=0 to=9
a 0 1 ffffffff80001000
# end cpu=0 to=9 samples=1 crc=8525f842
# account cpu=0 sent=1 taken=1 recorded=1 delivered=1
