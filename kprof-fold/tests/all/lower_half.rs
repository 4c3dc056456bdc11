//! Kernel code in the lower half of the address space is kernel code: because a profile from outside sets bit 63 in its
//! addresses, or because it lies in the range that the header gives for the kernel's text. With symbols of the lower
//! half it has its names; user code never has, and symbols of the upper half name none of it.

use crate::sealed::{batch, sealed};
use flate2::read::GzDecoder;
use kprof_fold::output::export::pprof::proto::Profile;
use kprof_format::marker::Marker;
use prost::Message as _;
use std::io::Read as _;
use std::process::Command;

const LOW: &str = "0000000000201000 T kmain\n0000000000202000 T work\n";
/// A kernel of the upper half with boot code of the lower one, whose size is not known.
const HIGH: &str = "0000000000100000 T boot\nffffffff80200000 T kmain\n";
/// In `work`, called by `kmain`; unknown code; user code.
const SAMPLES: &str = "guest 0 1 8000000000202010 8000000000201010\nguest 0 2 8000000000000000\nguest 0 3 202010\n";

/// A kernel that writes its addresses as they are: in `work`, called by `kmain`, with the facts and the user's part
/// after a system call; at the end of `work`, which is the end of the text; in user code.
fn plain() -> String {
    let [syscall, user] = [Marker::Syscall, Marker::User].map(Marker::encode);
    let first = format!("guest 0 1 202010 201010 {syscall:x} {user:x} 400010\n");
    batch(0, &(first + "guest 0 2 202010 203000\nguest 0 3 400010 400020\n"))
}

const PLAIN_HEAD: &str = "# kprof-profile 1\n# tsc-hz 1000000000\n# hz 1000\n# trigger nmi\n# load 201000\n\
                          # text 201000-203000\n# anchor kmain=201000\n";

/// What is folded with these symbols and options.
fn folded(symbols: &str, options: &[&str]) -> Vec<String> {
    let head = "# kprof-profile 1\n# tsc-hz 1000000000\n# hz 1000\n# trigger outside\n";
    run(&[&["folded"], options].concat(), &(head.to_owned() + &batch(0, SAMPLES)), symbols)
}

/// The lines of a command's output.
fn run(words: &[&str], text: &str, symbols: &str) -> Vec<String> {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let (profile, list) = (folder.path().join("profile.txt"), folder.path().join("syms.txt"));
    std::fs::write(&profile, sealed(text)).expect("can be written");
    std::fs::write(&list, symbols).expect("can be written");
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let files = if words[0] == "info" { vec![&profile] } else { vec![&profile, &list] };
    let quiet = if words[0] == "info" { None } else { Some("-q") };
    let done = fold.args(words).args(quiet).args(files).output().expect("runs");
    let (text, said) = (String::from_utf8(done.stdout), String::from_utf8_lossy(&done.stderr).into_owned());
    assert!(words[0] == "doctor" || done.status.success(), "{said}");
    text.expect("names are text").lines().map(str::to_owned).collect()
}

#[test]
fn kernel_code_in_the_lower_half_has_its_names() {
    assert_eq!(folded(LOW, &[]), ["[unknown] 1", "kmain;work 1"]);
    assert_eq!(folded(LOW, &["--user"]), ["[unknown] 2", "kmain;work 1"]);
}

#[test]
fn symbols_of_the_upper_half_name_none_of_it() {
    assert_eq!(folded(HIGH, &[]), ["[unknown] 1", "[unknown];[unknown] 1"]);
}

#[test]
fn an_address_in_the_text_of_the_header_is_kernel_code() {
    let text = PLAIN_HEAD.to_owned() + &plain();
    assert_eq!(run(&["folded"], &text, LOW), ["[syscall];kmain;work 1", "work;work 1"]);
    let with_user = ["[unknown];[syscall];kmain;work 1", "[unknown];[unknown] 1", "work;work 1"];
    assert_eq!(run(&["folded", "--user"], &text, LOW), with_user);
    let doctor = run(&["doctor"], &text, LOW).join(" ");
    assert!(!doctor.contains("user code") && !doctor.contains("outside of the kernel's text"), "{doctor}");
    let report = run(&["report", "--format", "csv"], &text, LOW).join("\n");
    assert!(report.contains("\nwork,2,2,"), "{report}");
}

#[test]
fn a_boot_in_the_upper_half_after_one_in_the_lower_half_has_its_own_kernel_code() {
    let boot = |number: u32, text: &str| format!("# kprof-profile 1\n# boot {number}\n# tsc-hz 1\n# text {text}\n");
    let samples = "guest 0 1 202010 201010\n";
    let both = format!(
        "{}{}{}{}",
        boot(1, "201000-203000"),
        batch(0, samples),
        boot(2, "ffffffff80200000-ffffffff80300000"),
        batch(0, samples)
    );
    assert_eq!(run(&["folded"], &both, LOW), ["kmain;work 1"]);
}

#[test]
fn addresses_are_shown_as_they_were_in_the_kernel() {
    let text = PLAIN_HEAD.to_owned() + &plain();
    for verb in [&["info"][..], &["info", "--format", "json"], &["script"], &["html", "-o", "-"]] {
        let shown = run(verb, &text, LOW).join("\n");
        assert!(!shown.contains("80000000002"), "{verb:?}: {shown}");
    }
    assert!(run(&["info"], &text, LOW).iter().any(|line| line.ends_with("text 201000-203000")));
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let file = folder.path().join("profile.pb.gz");
    run(&["export", "--to", "pprof", "-o", file.to_str().expect("is text")], &text, LOW);
    let mut bytes = Vec::new();
    let mut gzip = GzDecoder::new(std::fs::File::open(&file).expect("was written"));
    gzip.read_to_end(&mut bytes).expect("is gzip");
    let profile = Profile::decode(&bytes[..]).expect("is a profile");
    let addresses: Vec<u64> = profile.location.iter().map(|location| location.address).collect();
    assert!(addresses.contains(&0x20_2010) && addresses.iter().all(|address| address >> 63 == 0), "{addresses:x?}");
    assert_eq!((profile.mapping[0].memory_start, profile.mapping[0].memory_limit), (0x20_1000, 0x20_3000));
}
