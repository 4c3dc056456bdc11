# kernel threads: a map of words on the heap, page frames, two threads that hand a ball to each other
echo 60 > /kernel/heap
echo 800 > /kernel/pages
echo 40000 > /kernel/switch
