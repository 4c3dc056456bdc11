# The page below a kernel stack is not mapped, so a stack overflow causes a panic that says so, and corrupts nothing.
# expect: panic
# serial: kernel stack overflow
echo now > /kernel/overflow
