a 0 1 ffffffffffffeffe fffffffffffff004 fffffffffffff300
a 0 2 ffffffffffffeffe fffffffffffff004 fffffffffffff121 ffffffff80001000 ffffffff80003010
a 0 3 ffffffffffffeffe
a 0 4 1000 fffffffffffff004
