#!/bin/sh
# A small kernel with a shell as its first process (the test kernel, busybox): `. profiled.sh` in the init script, then
# `profiled_start`, sampling and work, `profiled_stop`. Nothing is sampled before `echo start > $scheme/ctl-profiling`.

scheme=${scheme:-/scheme/debug}

# Starts the daemon in the background and returns when it has the streams. Arguments go to profiled.
profiled_start() {
    profiled --quiet --scheme "$scheme" "$@" &
    profiled=$!
    until grep -q '^protocol 1' "$scheme/ctl-profiling"; do
        kill -0 "$profiled" || return 1
        usleep 1000
    done
}

# Lets it write the rest and the account; its exit code.
profiled_stop() {
    kill -TERM "$profiled"
    wait "$profiled"
}
