# Fails on purpose, to prove that a failing scenario is detected.
# expect: failure
# serial: init: scenario must-fail has failed with exit code 7
exit 7
