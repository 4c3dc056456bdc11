# Made to fail on purpose: proves that a failing scenario is noticed.
# expect: failure
# serial: init: scenario must-fail has failed with exit code 7
exit 7
