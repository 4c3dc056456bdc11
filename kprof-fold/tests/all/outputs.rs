//! Where output goes: a full disk is an error in every subcommand, and no file that was read is overwritten.

use crate::sealed::sealed;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

#[inline(never)]
fn sampled_function(value: u64) -> u64 {
    std::hint::black_box(value).rotate_left(7) ^ std::hint::black_box(3)
}

/// A profile, symbols, and a copy of this test program as the image, in a folder of their own.
struct Inputs {
    folder: PathBuf,
}

const COMMANDS: [&[&str]; 19] = [
    &["FILE", "SYMS"],
    &["folded", "FILE", "SYMS"],
    &["flamegraph", "FILE", "SYMS"],
    &["report", "FILE", "SYMS"],
    &["report", "FILE", "SYMS", "--tree"],
    &["report", "--tree", "FILE", "SYMS"],
    &["script", "FILE", "SYMS"],
    &["info", "FILE"],
    &["latency", "FILE"],
    &["lockups", "FILE", "SYMS"],
    &["export", "--to", "speedscope", "FILE", "SYMS"],
    &["export", "--to", "perfetto", "FILE", "SYMS"],
    &["export", "--to", "firefox", "FILE", "SYMS"],
    &["export", "--to", "pprof", "FILE", "SYMS"],
    &["annotate", "FILE", "ELF", "*sampled_function"],
    &["top", "--once", "FILE", "SYMS"],
    &["doctor", "FILE", "SYMS"],
    &["diff", "FILE", "FILE", "SYMS"],
    &["html", "FILE", "SYMS"],
];

impl Inputs {
    fn new(name: &str) -> Self {
        std::hint::black_box(sampled_function(1));
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("outputs-{name}"));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("the test folder is writable");
        let inputs = Self { folder };
        let elf = inputs.path("ELF");
        fs::copy(std::env::current_exe().expect("has a path"), &elf).expect("the test folder is writable");
        let mut problems = kprof_fold::problems::Problems::default();
        let symbols = kprof_fold::symbols::Symbols::open(&elf, &mut problems).expect("is an ELF file");
        let start = symbols.table.named("sampled_function").next().expect("has the symbol");
        let start = start - symbols.elf.expect("is an ELF file").base + 0xffff_ffff_8000_0000;
        let head = "# kprof-profile 1\n# tsc-hz 1000000000\n# boot 1\n# hz 1000\n# load ffffffff80000000\n";
        let samples: String = (0..20).map(|tsc| format!("a 1 {tsc:x} {:x}\n", start + 1)).collect();
        let account =
            "# account cpu=1 sent=20 taken=20 coalesced=0 user=0 idle=0 lost-full=0 recorded=20 delivered=20\n";
        let point = "# batch cpu=meta from=0 to=20\n\
                     # point-account tsc=1 cpu=1 weight=9 filtered=1 log2-3=1 unit=ns point=block.read\n\
                     # end cpu=meta to=20\n";
        let text =
            format!("{head}{point}# batch cpu=1 from=0 to=120\n{samples}# end cpu=1 to=120 samples=20\n{account}");
        fs::write(inputs.path("FILE"), sealed(&text)).expect("the test folder is writable");
        fs::write(inputs.path("SYMS"), format!("{start:x} T sampled\n")).expect("the test folder is writable");
        inputs
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn run(&self, words: &[&str], stdout: Stdio) -> Output {
        let is_input = |word: &str| ["FILE", "SYMS", "ELF"].contains(&word);
        let word = |word: &&str| if is_input(word) { self.path(word) } else { (*word).to_owned() };
        let mut command = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
        command.args(words.iter().map(word)).stdout(stdout).stderr(Stdio::piped());
        command.spawn().expect("kprof-fold runs").wait_with_output().expect("kprof-fold ends")
    }
}

fn said(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

#[test]
fn a_full_disk_is_an_error_in_every_subcommand() {
    let inputs = Inputs::new("full");
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").expect("Linux has it").into();
    for command in COMMANDS.iter().copied().chain([&["completions", "bash"][..], &["man"]]) {
        let done = inputs.run(command, full());
        assert_eq!(done.status.code(), Some(2), "{command:?}: {}", said(&done));
        assert!(said(&done).contains("cannot write standard output: No space left"), "{command:?}: {}", said(&done));
    }
    for command in COMMANDS {
        let done = inputs.run(&[command, &["-o", "/dev/full"][..]].concat(), Stdio::null());
        assert_eq!(done.status.code(), Some(2), "{command:?}: {}", said(&done));
        assert!(said(&done).contains("cannot write /dev/full"), "{command:?}: {}", said(&done));
    }
}

#[test]
fn an_output_whose_name_says_another_form_is_refused() {
    let inputs = Inputs::new("named");
    let out = inputs.path("out.xyz");
    // `export` is left out: `--to` gives its form, and not the name of the output.
    for command in COMMANDS.iter().filter(|command| command[0] != "export") {
        let done = inputs.run(&[command, &["-o", &out][..]].concat(), Stdio::null());
        assert_eq!(done.status.code(), Some(2), "{command:?}: {}", said(&done));
        assert!(said(&done).contains(".xyz is none of the forms"), "{command:?}: {}", said(&done));
        assert!(!PathBuf::from(&out).exists(), "{command:?}");
    }
}

#[test]
fn info_writes_every_fact_in_each_of_its_forms() {
    let inputs = Inputs::new("info");
    let out = |name: &str| {
        let file = inputs.path(name);
        let done = inputs.run(&["info", "FILE", "-o", &file], Stdio::null());
        assert_eq!(done.status.code(), Some(0), "{}", said(&done));
        fs::read_to_string(file).expect("was written")
    };
    let json: serde_json::Value = serde_json::from_str(&out("out.json")).expect("is JSON");
    let csv = out("out.csv");
    for (path, row) in [
        ("/samples", "samples,20"),
        ("/boots/0/cpus/0/samples", "boots.0.cpus.0.samples,20"),
        ("/boots/0/header/hz", "boots.0.header.hz,1000"),
        ("/tasks/0/name", "tasks.0.name,a"),
    ] {
        let value = json.pointer(path).unwrap_or_else(|| panic!("{path} in {json}"));
        assert!(row.ends_with(value.to_string().trim_matches('"')), "{path}: {value}");
        assert!(csv.lines().any(|line| line == row), "{row} in {csv}");
    }
    assert!(out("out.txt").contains("1000"));
}

#[test]
fn no_subcommand_writes_over_a_file_that_it_reads() {
    let inputs = Inputs::new("over");
    let (link, hard) = (inputs.path("link"), inputs.path("hard"));
    symlink(inputs.path("FILE"), &link).expect("links can be made");
    fs::hard_link(inputs.path("FILE"), &hard).expect("links can be made");
    for command in COMMANDS {
        let read = ["FILE", "SYMS", "ELF"].into_iter().filter(|name| command.contains(name));
        let names: Vec<String> = read.map(|name| inputs.path(name)).chain([link.clone(), hard.clone()]).collect();
        for name in names {
            let before = fs::read(&name).expect("is there");
            let done = inputs.run(&[command, &["-o", &name][..]].concat(), Stdio::null());
            assert_eq!(done.status.code(), Some(2), "{command:?} -o {name}: {}", said(&done));
            assert!(said(&done).contains("is the same file as the input"), "{command:?}: {}", said(&done));
            assert!(fs::read(&name).expect("is there") == before, "{command:?} -o {name}");
        }
    }
}

#[test]
fn an_output_is_whole_or_what_was_there_before() {
    let inputs = Inputs::new("whole");
    let (out, link) = (inputs.path("out"), inputs.path("link"));
    fs::write(&out, "before").expect("the test folder is writable");
    fs::set_permissions(&out, fs::Permissions::from_mode(0o640)).expect("is ours");
    symlink("out", &link).expect("links can be made");
    // A limit on the size of files makes every write of output fail. Symbols and profile already exist.
    let words = ["folded", &inputs.path("FILE"), &inputs.path("SYMS"), "-o", &link].map(str::to_owned);
    let shell = format!("trap '' XFSZ; ulimit -f 0; exec {} {}", env!("CARGO_BIN_EXE_kprof-fold"), words.join(" "));
    let done = Command::new("sh").args(["-c", &shell]).output().expect("there is a shell");
    assert_eq!(done.status.code(), Some(2), "{}", said(&done));
    assert_eq!(fs::read_to_string(&out).expect("is there"), "before");
    let done = inputs.run(&["FILE", "SYMS", "-o", &link], Stdio::null());
    assert!(done.status.success(), "{}", said(&done));
    assert_eq!(fs::read_to_string(&out).expect("is there"), "sampled 20\n");
    assert!(fs::symlink_metadata(&link).expect("is there").is_symlink());
    assert_eq!(fs::metadata(&out).expect("is there").mode() & 0o777, 0o640);
    let left = fs::read_dir(Path::new(&inputs.folder)).expect("is there");
    let names: Vec<_> = left.map(|entry| entry.expect("is there").file_name()).collect();
    assert_eq!(names.len(), 5, "{names:?}");
}
