//! The calls of docs/scripting.md: each is typed as it stands there, on a small profile with samples on two CPUs and
//! the hits of a point. None may fail, and what is asked for as JSON must be JSON.

use crate::sealed::{batch, names, sealed};
use std::path::Path;
use std::process::Command;

const SYMS: &str = "ffffffff80001000 0000000000001000 T kmain\nffffffff80002000 0000000000001000 T mm::map\n";

fn profile() -> String {
    let head = "# kprof-profile 1\n# tsc-hz 1000000000\n# hz 1000\n# trigger nmi\n";
    let sample = |cpu: u32, at: u64, facts: &str| {
        format!("sh {cpu} {:x} ffffffff80002010{facts} ffffffff80001020\n", 1_000_000_000 + at)
    };
    let of_cpu = |cpu| {
        let times = [0, 531_500_000, 550_000_000, 900_000_000];
        times.map(|at| sample(cpu, at, if at == 0 { " fffffffffffff001" } else { "" })).concat()
    };
    let point = "# point tsc=1 id=0 unit=ns state=count name=block.read\n\
                 # point-account tsc=9 cpu=2 weight=300 filtered=2 log2-7=2 unit=ns point=block.read\n";
    sealed(&format!("{head}{}{}{}", names(point), batch(1, &of_cpu(1)), batch(2, &of_cpu(2))))
}

#[test]
fn every_call_of_the_page_for_scripts_gives_an_answer() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/scripting.md");
    let page = std::fs::read_to_string(page).expect("is there");
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    for (name, text) in [("old.txt", profile()), ("new.txt", profile()), ("profiling.txt", profile())] {
        std::fs::write(folder.path().join(name), text).expect("can be written");
    }
    std::fs::write(folder.path().join("kernel.elf"), SYMS).expect("can be written");
    let calls = page.lines().filter_map(|line| line.strip_prefix("| ")?.split('`').nth(1));
    let calls: Vec<&str> = calls.filter_map(|call| call.strip_prefix("kprof-fold ")).collect();
    assert_eq!(calls.len(), 10);
    for call in calls {
        let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
        let done = fold.args(call.split(' ')).current_dir(folder.path()).output().expect("runs");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{call}: {said}");
        if call.contains("json") {
            let document: serde_json::Value = serde_json::from_slice(&done.stdout).expect("is JSON");
            assert!(document.as_object().is_some_and(|object| !object.is_empty()), "{call}: {document}");
        } else if let Some(file) = call.split(' ').skip_while(|word| *word != "-o").nth(1) {
            assert!(std::fs::metadata(folder.path().join(file)).is_ok_and(|file| file.len() > 0), "{call}");
        } else {
            assert!(String::from_utf8_lossy(&done.stdout).contains("mm::map"), "{call}: {said}");
        }
    }
}
