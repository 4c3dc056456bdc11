# kprof-profile 1
# tsc-hz 1000000000
# boot 7
# cpus 2
# sampler 0
# anchor kmain=ffffffff80001000
# batch cpu=meta from=0 to=60
# task id=8 name=dd
# point tsc=1 id=0 unit=bytes state=record name=null.write
# point-account tsc=9 cpu=1 weight=1300 recorded=3 filtered=1 lost=1 asked-weight=1200 lost-weight=300 log2-6=1 log2-8=4 unit=bytes point=null.write
# end cpu=meta to=60 crc=59bd4aeb
# batch cpu=event-1 from=0 to=60
!null.write dd 1 5 300 - ffffffff80002100 ffffffff80001020 fffffffffffff300 fffffffffffff500 401000
!null.write dd 1 6 300 7,ff ffffffff80002100 ffffffff80001020 fffffffffffff300 fffffffffffff500 401000
!null.write a%20b 1 7 300 - ffffffff80002120 ffffffff80001020
!other dd 1 8 1 - ffffffff80002120
# end cpu=event-1 to=60 samples=4 crc=25fbccc9
# batch cpu=event-1 from=0 to=60
!null.write dd 1 5 300 - ffffffff80002100 ffffffff80001020 fffffffffffff300 fffffffffffff500 401000
!null.write dd 1 6 300 7,ff ffffffff80002100 ffffffff80001020 fffffffffffff300 fffffffffffff500 401000
!null.write a%20b 1 7 300 - ffffffff80002120 ffffffff80001020
!other dd 1 8 1 - ffffffff80002120
# end cpu=event-1 to=60 samples=4 crc=25fbccc9
# account cpu=1 sent=0 taken=0 recorded=0 delivered=0
