//! The examples at the end of each subcommand's help. Stage: command line.
//!
//! In: nothing. Out: text. A test parses every line, so that no example names an option that does not exist.

/// Without a subcommand.
pub const ALL: &str = "\
Examples:
  kprof-fold profiling.txt kernel.elf | inferno-flamegraph > graph.svg
  kprof-fold html profiling.txt kernel.elf -o page.html
  kprof-fold report profiling.txt kernel.elf --top 20
  nm -CS kernel.elf > syms.txt; ssh host cat profiling.txt | kprof-fold - syms.txt

Folded stacks go to standard output, everything else to standard error.
Exit codes: 0 done; 1 something was skipped (--strict); 2 unusable input or arguments;
3 more lost than --max-loss; 4 a claim of diff --fail-if holds; 5 the account does not balance (report; with --strict everywhere).";

/// `folded`.
pub const FOLDED: &str = "\
Examples:
  kprof-fold folded profiling.txt kernel.elf > stacks.folded
  kprof-fold folded profiling.txt kernel.elf --by task --under sys_write | inferno-flamegraph > write.svg";

/// `flamegraph`.
pub const FLAMEGRAPH: &str = "\
Examples:
  kprof-fold flamegraph profiling.txt kernel.elf -o graph.svg
  kprof-fold flamegraph profiling.txt kernel.elf --reverse --not idle --title 'who calls what' -o callers.svg";

/// `html`.
pub const HTML: &str = "\
Examples:
  kprof-fold html profiling.txt kernel.elf -o page.html
  kprof-fold html new.txt new.elf --compare old.txt --compare-syms old.elf -o changes.html";

/// `script`.
pub const SCRIPT: &str = "\
Examples:
  kprof-fold script profiling.txt kernel.elf | inferno-collapse-perf | inferno-flamegraph > graph.svg
  kprof-fold script profiling.txt kernel.elf --task init --between 1.5 2";

/// `info`.
pub const INFO: &str = "\
Examples:
  kprof-fold info profiling.txt
  kprof-fold info profiling.txt --strict";

/// `latency`.
pub const LATENCY: &str = "\
Examples:
  kprof-fold latency profiling.txt
  kprof-fold latency profiling.txt --event 'block.*' -o block.json
  kprof-fold latency profiling.txt --event 'block.*' --by-size

A quantile is given as the range that it lies in: the kernel counts weights by powers of two.";

/// `waits`.
pub const WAITS: &str = "\
Examples:
  kprof-fold waits profiling.txt
  kprof-fold waits profiling.txt --task dd -o dd.json

The parts of a task's time add up to all of it, to the tick of the clock.";

/// `lockups`.
pub const LOCKUPS: &str = "\
Examples:
  kprof-fold lockups serial.log kernel.elf
  kprof-fold lockups profiling.txt kernel.elf -o lockups.json
  kprof-fold lockups serial.log kernel.elf --format folded

The kernel reports lockups after the ctl command `lockup MS`.";

/// `export`.
pub const EXPORT: &str = "\
Examples:
  kprof-fold export --to firefox profiling.txt kernel.elf -o profile.json
  kprof-fold export --to pprof profiling.txt kernel.elf -o profile.pb.gz; go tool pprof -top profile.pb.gz
  kprof-fold export --to perfetto --event sched.off-cpu profiling.txt kernel.elf -o waits.pftrace";

/// `diff`.
pub const DIFF: &str = "\
Examples:
  kprof-fold diff old.txt new.txt kernel.elf
  kprof-fold diff old.txt old.elf new.txt new.elf --fail-if 'mm::* > +2%'
  kprof-fold diff -o change.md old1.txt old2.txt old.elf -- new1.txt new2.txt new.elf
  kprof-fold diff old.folded new.folded -o change.svg
  kprof-fold diff --event heap.alloc old.txt new.txt kernel.elf";

/// `annotate`.
pub const ANNOTATE: &str = "\
Examples:
  kprof-fold annotate profiling.txt kernel.elf map_page
  kprof-fold annotate profiling.txt kernel.elf '/memcpy|memset/' --task dd";

/// `top`.
pub const TOP: &str = "\
Examples:
  kprof-fold top /srv/guest/profiling.txt kernel.elf
  qemu-system-x86_64 -serial stdio | kprof-fold top - kernel.elf
  kprof-fold top profiling.txt kernel.elf --once";

/// `doctor`.
pub const DOCTOR: &str = "\
Examples:
  kprof-fold doctor profiling.txt kernel.elf
  kprof-fold doctor serial.log kernel.elf --format json";

/// `probes`.
pub const PROBES: &str = "\
Examples:
  kprof-fold probes kernel.elf -o places.txt
  kprof-fold probes kernel.elf 'kernel::fs::*::read' --handler trap_entry

Each line: the function's address in the file, the distances of the instructions that leave it, its name.
`# refused:` says why a function cannot be probed. kprof-record probe --places FILE uses the file.";

/// `tables`.
pub const TABLES: &str = "\
Examples:
  kprof-fold tables kernel.elf -o kernel.tables
  objcopy --update-section .kprof.unwind=kernel.tables kernel.elf

If the kernel reserves a section .kprof.unwind, the file has its size. docs/no-frame-pointers.md has the recipe.";

/// `report`.
pub const REPORT: &str = "\
Examples:
  kprof-fold report profiling.txt kernel.elf
  kprof-fold report profiling.txt kernel.elf --by entry
  kprof-fold report profiling.txt kernel.elf --under sys_write --tree callees --limit 1%
  kprof-fold report profiling.txt kernel.elf -o report.json";

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use clap::{CommandFactory, Parser};

    /// The words of a command line; quotes hold a word together, as in a shell.
    fn words(line: &str) -> Vec<String> {
        let pieces = line.split('\'').enumerate();
        let words = pieces.flat_map(|(number, piece)| match number % 2 {
            0 => piece.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
            _ => vec![piece.to_owned()],
        });
        words.collect()
    }

    #[test]
    fn every_subcommand_has_examples_and_every_example_is_understood() {
        let cli = Cli::command();
        for command in std::iter::once(&cli).chain(cli.get_subcommands()) {
            if ["completions", "man", "help"].contains(&command.get_name()) {
                continue;
            }
            let text = command.get_after_help().unwrap_or_else(|| panic!("{}", command.get_name())).to_string();
            let mut examples = 0;
            let pieces = text.lines().filter(|line| line.starts_with("  ")).flat_map(|line| line.split(['|', ';']));
            // A regular expression has `|` too; no such line is cut there.
            let lines = pieces.map(|piece| piece.split(" > ").next().unwrap_or_default().trim());
            for line in lines.filter(|line| line.starts_with("kprof-fold ") && line.matches('\'').count() % 2 == 0) {
                let is_subcommand = std::ptr::eq(command, &cli) || line.split(' ').nth(1) == Some(command.get_name());
                assert!(is_subcommand, "{line}");
                Cli::try_parse_from(words(line)).unwrap_or_else(|why| panic!("{line}: {why}"));
                examples += 1;
            }
            assert!(examples > 0, "{}", command.get_name());
        }
    }

    #[test]
    fn the_own_options_of_a_subcommand_come_before_the_common_ones() {
        for (name, own) in [("report", "--sort"), ("diff", "--fail-if"), ("top", "--interval"), ("script", "--offsets")]
        {
            let mut cli = Cli::command();
            let help = cli.find_subcommand_mut(name).expect("exists").render_long_help().to_string();
            let place = |text: &str| help.find(text).unwrap_or_else(|| panic!("{name}: no {text} in\n{help}"));
            assert!(place(own) < place("Which samples count:") && place(own) < place("Reading and writing:"), "{help}");
        }
    }
}
