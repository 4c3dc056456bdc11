# The page under a kernel stack is not mapped: a stack that overflows is a panic that says so, not a corrupted kernel.
# expect: panic
# serial: kernel stack overflow
echo now > /kernel/overflow
