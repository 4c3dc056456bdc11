# kprof-profile 1
# boot 1
# batch cpu=meta from=0 to=40
# image tsc=1 load=400000 text=401000-402000 build-id=- name=init
# image tsc=2 load=500000 text=501000-502000 build-id=- name=busybox
# image tsc=3 load=ffffffffa0000000 text=ffffffffa0000000-ffffffffa0001000 build-id=- name=e1000
# end cpu=meta to=40 crc=44e13aaf
# batch cpu=0 from=0 to=50
a 0 1 ffffffff80002010 fffffffffffff300 fffffffffffff500 401010 401110
b 0 2 ffffffff80002010 fffffffffffff300 fffffffffffff500 501010 501110
c 0 3 ffffffffa0000010 ffffffff80001020
d 0 4 401010
e 0 5 601010
# end cpu=0 to=50 samples=5 crc=3e43f2ec
