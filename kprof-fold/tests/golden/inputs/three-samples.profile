a 0 1f4 ffffffff80002010 ffffffff80001020
b 1 3e8 ffffffff80002110 ffffffff80003010
b 1 7d0 ffffffff80002010 ffffffff80001020
