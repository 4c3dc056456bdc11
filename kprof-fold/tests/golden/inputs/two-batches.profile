# kprof-profile 1
# tsc-hz 2200000000
# boot 5f0c
# hz 1000
# anchor kmain=ffffffff80001000
# batch cpu=1 from=0 to=12 first-tick=1 last-tick=3 taken=5 coalesced=0 lost-full=1
a 1 1 ffffffff80002010 ffffffff80001020
a 1 2 ffffffff80002110 ffffffff80001020
# end cpu=1 to=12 samples=2 crc=641e3d5e
# batch cpu=1 from=12 to=18 first-tick=4 last-tick=9 taken=9 coalesced=1 lost-full=2
a 1 9 ffffffff80002010 ffffffff80001020
# end cpu=1 to=18 samples=1 crc=181f0769
# account cpu=1 sent=10 taken=9 coalesced=1 user=1 idle=2 lost-full=3 lost-nested=0 lost-torn=0 recorded=3 delivered=3 overwritten=0 in-ring=0 irq-on=2 irq-off=1 interrupt=0 self-tsc=0
