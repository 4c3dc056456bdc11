//! `--event NAME --cpu LIST`: the numbers of each CPU by itself add up to those of all CPUs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// The folded stacks of the CPUs of a list, and what is said of them. An empty list: of all CPUs.
fn folded(cpus: &str, options: &[&str]) -> (BTreeMap<String, u64>, String) {
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/inputs");
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    fold.args(["folded", "--event", "lock.wait"]).args(options);
    if !cpus.is_empty() {
        fold.args(["--cpu", cpus]);
    }
    let done = fold.arg(golden.join("events-on-cpus.profile")).arg(golden.join("five-functions.syms")).output();
    let done = done.expect("kprof-fold runs");
    let [text, said] = [&done.stdout, &done.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(done.status.success(), "{said}");
    let count = |line: &str| {
        let (stack, count) = line.rsplit_once(' ').expect("is a stack with a count");
        (stack.to_owned(), count.parse().expect("is a number"))
    };
    (text.lines().map(count).collect(), said)
}

#[test]
fn each_cpu_by_itself_adds_up_to_the_whole() {
    for (options, homeless) in [(&[][..], 5000), (&["--count"], 1)] {
        let mut sums = BTreeMap::<String, u64>::new();
        for cpu in ["1", "2", "3"] {
            let (stacks, said) = folded(cpu, options);
            assert!(said.contains(&format!("lock.wait on CPU {cpu}: ")), "{said}");
            assert!(
                said.contains("in the numbers of no CPU are lost hits whose CPU is not known: 1 (5000 ns)"),
                "{said}"
            );
            stacks.into_iter().for_each(|(stack, count)| *sums.entry(stack).or_default() += count);
        }
        assert_eq!(folded("1,2,3", options).0, sums);
        // What was lost where no CPU is known is only in the whole.
        *sums.entry("[lost]".to_owned()).or_default() += homeless;
        let (whole, said) = folded("", options);
        assert_eq!(whole, sums, "{said}");
        assert_eq!(whole.values().sum::<u64>(), if homeless == 1 { 14 } else { 1_766_000 });
    }
}
