# kprof-profile 1
# tsc-hz 1000000000
# boot 7
# cpus 2
# sampler 0
# anchor kmain=ffffffff80001000
# batch cpu=meta from=0 to=60
# point-account tsc=9 cpu=1 weight=6200 recorded=2 filtered=18 unsampled=18 asked-weight=6200 log2-8=20 unit=bytes point=null.write
# end cpu=meta to=60 crc=be1a650d
# batch cpu=event-1 from=0 to=20
!null.write dd 1 5 400x10 - ffffffff80002100 ffffffff80001020
!null.write dd 1 6 200x10 - ffffffff80002120 ffffffff80001020
# end cpu=event-1 to=20 samples=2 crc=78fed2b8
