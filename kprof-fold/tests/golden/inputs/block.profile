# kprof-profile 1
# tsc-hz 1000000000
# boot 7
# cpus 2
# sampler 0
# anchor kmain=ffffffff80001000
# batch cpu=meta from=0 to=60
# point-account tsc=9 cpu=1 weight=9602 recorded=5 lost=1 asked-weight=9602 lost-weight=1 log2-0=2 log2-6=1 log2-7=1 log2-8=1 log2-13=1 unit=ns point=block.read
# point-account tsc=9 cpu=1 weight=50000 recorded=1 asked-weight=50000 log2-15=1 unit=ns point=block.write
# point-account tsc=9 cpu=1 weight=512 recorded=1 asked-weight=512 log2-9=1 unit=bytes point=null.write
# end cpu=meta to=60 crc=0d1dc1be
# batch cpu=event-1 from=0 to=60
!block.read dd 1 5 100 800,1000 ffffffff80002100 ffffffff80001020
!block.read dd 1 6 300 808,1000 ffffffff80002100 ffffffff80001020
!block.read cp 1 7 9000 1ffffffffffff,10000 ffffffff80002100 ffffffff80001020
!block.read dd 1 8 200 810,1e00 ffffffff80002100 ffffffff80001020
!block.write dd 1 9 50000~1000 8,200 ffffffff80002100 ffffffff80001020
!block.read dd 1 a 1 7 ffffffff80002100 ffffffff80001020
!null.write dd 1 b 512 800,1000 ffffffff80002100 ffffffff80001020
# end cpu=event-1 to=60 samples=7 crc=3072e908
# account cpu=1 sent=0 taken=0 recorded=0 delivered=0
