# What scenarios ask of the control file. Sourced by them as /etc/ctl.sh.
ctl=/scheme/debug/ctl-profiling
# The value of a line of it.
value() {
    sed -n "s/^$1 //p" $ctl
}
# The commands that put probes on the functions of a file of `kprof-fold probes`.
probe_commands() {
    sed -n '/^#/!{s/^\([0-9a-f]*\) -.*/probe \1/;s/^\([0-9a-f]*\) \([^ ]*\) .*/probe \1 \2/;s/,/ /g;p}' $1
}
# Waits until a line has this value, but at most for a time that is very long on a quiet machine.
until_is() {
    for try in $(seq 600); do
        [ "$(value $1)" = "$2" ] && return
        usleep 100000
    done
    echo "$1 is $(value $1), not $2"
    return 1
}
