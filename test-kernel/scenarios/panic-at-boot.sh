# A panic before init runs.
# expect: panic
# append: panic=boot
# serial: a panic was asked for on the command line
exit 0
