# kernel threads: a map of words on the heap, page frames, two threads that alternate by sleep and wake-up
echo 60 > /kernel/heap
echo 800 > /kernel/pages
echo 40000 > /kernel/switch
