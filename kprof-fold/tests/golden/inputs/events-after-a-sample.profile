# kprof-profile 1
# tsc-hz 1000000000
# boot 7
# cpus 4
# sampler 0
# anchor kmain=ffffffff80001000
# batch cpu=meta from=0 to=60
# point tsc=1 id=0 unit=ns state=record name=lock.wait
# point-account tsc=9 cpu=1 weight=1700000 recorded=2 filtered=1 asked-weight=1500000 log2-17=1 log2-18=1 log2-20=1 unit=ns point=lock.wait
# point-account tsc=9 cpu=2 weight=61000 recorded=2 lost=1 filtered=7 unsampled=7 asked-weight=61000 lost-weight=2000 log2-12=10 unit=ns point=lock.wait
# point-account tsc=9 weight=5000 lost=1 unit=ns point=lock.wait
# end cpu=meta to=60 crc=3dd22f30
# batch cpu=event-1 from=0 to=40
!lock.wait dd 1 1e8480 300000 7,ff ffffffff80002100 ffffffff80001020 fffffffffffff300 fffffffffffff500 401000
!lock.wait a%20b 1 2dc6c0 1200000 - ffffffff80002120 ffffffff80001020
# end cpu=event-1 to=40 samples=2 crc=763f5a55
# batch cpu=event-2 from=0 to=40
!lock.wait dd 2 1e8480 4000x5 1,ffff900000001000 ffffffff80002100 ffffffff80001020
!lock.wait dd 2 1e8c50 7000x5 - ffffffff80002120 ffffffff80001020
# end cpu=event-2 to=40 samples=2 crc=f765bffc
# batch cpu=3 from=0 to=6 sent=1 taken=1 coalesced=0 user=0 idle=0 recorded=1 delivered=1
dd 3 19f0a0 1000
# end cpu=3 to=6 samples=1 crc=409f0fde
