# kernel code only, the same amount of it every time, for `cargo xtask gate`
echo 20 > /kernel/heap &
echo 3000 > /kernel/pages
wait $!
echo 5000 > /kernel/switch
