# kernel threads: a map of words on the heap, page frames, two threads that hand a ball to each other
echo 200 > /kernel/heap
echo 2000 > /kernel/pages
echo 10000 > /kernel/switch
