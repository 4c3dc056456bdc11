#!/bin/sh
# A small kernel with a shell as its first process (the test kernel, busybox): `. profiled.sh` in the init script, then
# `profiled_start`, sampling and work, `profiled_stop`. Nothing is sampled before `echo start > $scheme/ctl-profiling`.

scheme=${scheme:-/scheme/debug}
pid_file=${pid_file:-/profiled.pid}

# Starts the daemon in the background and returns when it has the streams. Arguments go to profiled.
profiled_start() {
    rm -f "$pid_file"
    profiled --quiet --scheme "$scheme" --pid-file "$pid_file" "$@" &
    profiled=$!
    until read -r pid 2> /dev/null < "$pid_file" && [ "$pid" = "$profiled" ]; do
        # `jobs` collects a process that has ended; before that, `kill` still finds it.
        jobs > /dev/null
        kill -0 "$profiled" 2> /dev/null || return 1
        # Each `usleep` is a task, whose name the kernel keeps until the daemon has read it. So they are few.
        usleep 50000
    done
}

# Lets it write the rest and the account; its exit code.
profiled_stop() {
    kill -TERM "$profiled"
    wait "$profiled"
}
