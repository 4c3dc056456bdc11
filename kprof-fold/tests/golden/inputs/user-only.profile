# kprof-profile 1
# tsc-hz 1000000000
# boot 7
# arch x86_64
# trigger outside
# clock instructions
# precision instruction
# interval random 50
# seed 1
# include user
# exclude kernel
# mode drop
# batch cpu=0 from=0 to=12 first-tick=1 last-tick=5 taken=5 coalesced=0 user=0 idle=0 kernel=2 lost-full=0 recorded=3
guest 0 1000 401000
guest 0 1100 401010
guest 0 1400 401000
# end cpu=0 to=12 samples=3 crc=f35ea84e
# account cpu=0 sent=7 taken=7 coalesced=0 user=0 idle=1 kernel=3 lost-full=0 recorded=3 pending=0 delivered=3
