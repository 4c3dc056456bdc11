a 0 1 ffffffff80002010
a 0 1 ffffffff80002010 ffffffff80001020