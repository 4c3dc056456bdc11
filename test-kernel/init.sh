#!/bin/sh
# The first process. In: the options of the kernel's command line, as environment variables. `scenario=` and `workload=`
# say what to run, `seconds=` for how long; the workload `boot` is the boot itself, which is over here. `daemon=` has
# options of profiled and `include=` has `idle` or `user`, both with commas instead of spaces. `interval=` is `random`
# or `fixed`. With `drain=after`, profiled runs only after the work. `late=` names a file for the shared folder, which
# is then mounted only after the work. Out: profiled runs as a service, then a workload or a scenario runs, then the
# machine is powered off. If anything fails, the machine ends with the exit code of a failure.

fail() {
    echo "init: $*"
    echo failure > /kernel/exit
}

if [ -n "$scenario" ]; then
    sh "/scenarios/$scenario.sh" || fail "scenario $scenario has failed with exit code $?"
    echo "init: scenario $scenario has passed"
    echo success > /kernel/exit
fi

words() {
    echo "$1" | tr , ' '
}

. /etc/profiled.sh
[ "$workload" != boot ] || echo stop > /scheme/debug/ctl-profiling || fail "sampling cannot be stopped"
[ "$drain" = after ] || profiled_start $(words "$daemon") || fail "profiled has ended"

work() {
    [ -z "$interval" ] || echo "interval $interval" > /scheme/debug/ctl-profiling || fail "interval $interval is refused"
    for who in $(words "$include"); do
        echo "include $who" > /scheme/debug/ctl-profiling || fail "include $who is refused"
    done
    echo start > /scheme/debug/ctl-profiling || fail "sampling cannot be started"
    echo "init: workload $workload runs"
    timeout "$seconds" sh "/workloads/$workload.sh"
    # Processes that a workload has left running in the background are ended too. Profiled is also a child of this
    # shell.
    for process in $(cat /kernel/processes); do
        [ "$process" -le 1 ] || [ "$process" = "$profiled" ] || kill -KILL "$process" 2> /dev/null
    done
    echo "init: workload $workload has ended with exit code $?"
    echo stop > /scheme/debug/ctl-profiling || fail "sampling cannot be stopped"
}
[ "$workload" = boot ] || work

[ "$drain" != after ] || profiled_start $(words "$daemon") || fail "profiled has ended"
profiled_stop || fail "profiled has ended with exit code $?"
if [ -n "$late" ]; then
    echo mount > /kernel/share && cp "$late" /root || fail "$late cannot be copied to the shared folder"
fi
echo success > /kernel/exit
