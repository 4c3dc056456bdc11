# Hangs on purpose, to prove that the time limit ends a run.
# expect: time-limit
# limit: 3
sleep 1000
