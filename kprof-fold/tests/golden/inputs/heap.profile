# kprof-profile 1
# tsc-hz 1000000000
# boot 7
# cpus 3
# sampler 0
# anchor kmain=ffffffff80001000
# batch cpu=meta from=0 to=60
# point-account tsc=9 cpu=1 weight=200000 recorded=3 filtered=97 unsampled=97 asked-weight=200000 log2-10=97 log2-13=3 unit=bytes point=heap.alloc
# point-account tsc=9 cpu=2 weight=90000 recorded=1 filtered=39 unit=bytes point=heap.free
# end cpu=meta to=60 crc=35bb260e
# batch cpu=event-2 from=0 to=20
!heap.free init 2 3000 9000~65536 1,ffff900000001000 ffffffff80002120 ffffffff80001020
# end cpu=event-2 to=20 samples=1 crc=60ae9011
# batch cpu=event-1 from=0 to=60
!heap.alloc dd 1 1000 9000~65536 1,ffff900000001000 ffffffff80002100 ffffffff80001020
!heap.alloc sh 1 2000 70000~65536 2,ffff900000005000 ffffffff80002120 ffffffff80001020
!heap.alloc dd 1 77359400 9000~65536 3,ffff900000001000 ffffffff80002100 ffffffff80001020
# end cpu=event-1 to=60 samples=3 crc=e348a6d0
