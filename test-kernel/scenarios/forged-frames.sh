# A program jumps to addresses that look like markers, and to kernel code, and has such words in its chain of frames.
# None of these words is in its samples, with user frames or without.
# folds: include.txt
# folds: exclude.txt
# unfolded: include.txt trap_stub_0
# unfolded: exclude.txt trap_stub_0
. /etc/profiled.sh
ctl=/scheme/debug/ctl-profiling
echo "hz 10000" > $ctl
kernel=$(sed -n 's/^anchor trap_stub_0=//p' $ctl)
for who in include exclude; do
    profiled_start -o /root/$who.txt || exit 1
    echo "$who user" > $ctl
    echo start > $ctl
    # Runs the program several times, because a busy host may run the sampler only rarely.
    for try in $(seq 4); do
        forge-frames 3000 $kernel || exit 2
    done
    echo stop > $ctl
    profiled_stop || exit 3
    # After the word where user code begins: first an address of the user half, or 0; then such addresses, or a
    # truncation marker.
    awk '
        $1 == "forge-frames" {
            for (i = 4; i <= NF && $i !~ /^fffffffffffff5/; i++);
            if (i > NF) next
            seen++
            if ($(i + 1) == "0") nowhere++
            for (j = i + 1; j <= NF; j++)
                if (length($j) > 14 && (j == i + 1 || $j !~ /^fffffffffffff40/)) { print "forged: " $0; bad = 1 }
        }
        END {
            print "forge-frames: " seen + 0 " samples with user code, " nowhere + 0 " from nowhere"
            exit bad || nowhere < 20
        }' /root/$who.txt || exit 4
done
