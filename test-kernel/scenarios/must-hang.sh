# Made to hang on purpose: proves that the time limit ends a run.
# expect: time-limit
# limit: 3
sleep 1000
