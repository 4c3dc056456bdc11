# kprof-profile 1
# tsc-hz 2200000000
# boot 5f0c
# hz 1000
# anchor kmain=ffffffff80001010
# batch cpu=0 from=0 to=6
a 0 1 ffffffff80001000
# end cpu=0 to=6 samples=1 crc=9b434ca7
