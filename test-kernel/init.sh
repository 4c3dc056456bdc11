#!/bin/sh
# The first process. In: the kernel's command line as environment (`scenario=`, `workload=`, `seconds=`, `daemon=`:
# options of profiled, `include=`: idle, user; commas for spaces; `interval=`: random, fixed; `drain=after`: profiled
# runs only after the work; `late=`: a file for the shared folder, which is mounted only then). Starts profiled as a
# service, runs a workload (or a scenario), powers off. What fails ends the machine as a failure.

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
[ "$drain" = after ] || profiled_start $(words "$daemon") || fail "profiled has ended"

[ -z "$interval" ] || echo "interval $interval" > /scheme/debug/ctl-profiling || fail "interval $interval is refused"
for who in $(words "$include"); do
    echo "include $who" > /scheme/debug/ctl-profiling || fail "include $who is refused"
done
echo start > /scheme/debug/ctl-profiling || fail "sampling cannot be started"
echo "init: workload $workload runs"
timeout "$seconds" sh "/workloads/$workload.sh"
# What a workload left running in the background ends too; profiled is this shell's other child.
for process in $(cat /kernel/processes); do
    [ "$process" -le 1 ] || [ "$process" = "$profiled" ] || kill -KILL "$process" 2> /dev/null
done
echo "init: workload $workload has ended with exit code $?"
echo stop > /scheme/debug/ctl-profiling || fail "sampling cannot be stopped"

[ "$drain" != after ] || profiled_start $(words "$daemon") || fail "profiled has ended"
profiled_stop || fail "profiled has ended with exit code $?"
if [ -n "$late" ]; then
    echo mount > /kernel/share && cp "$late" /root || fail "$late cannot be copied to the shared folder"
fi
echo success > /kernel/exit
