a 0 1 ffffffff80002010
