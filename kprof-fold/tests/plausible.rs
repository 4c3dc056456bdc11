//! If a profile does not identify its symbols, those of another kernel are detected. The right symbols never raise an
//! alarm.
#![forbid(unsafe_code)]

#[path = "all/sealed.rs"]
mod sealed;

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use kprof_fold::symbols::Symbols;
use sealed::{batch, sealed};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const LOAD: u64 = 0xffff_ffff_8000_0000;
/// Where the Redox kernel of the data has its code.
const REDOX_TEXT: u64 = LOAD + 0x1000;

fn file(name: &str, text: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("plausible-{name}"));
    fs::write(&path, text).expect("the test folder is writable");
    path.display().to_string()
}

fn redox(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/redox").join(name).display().to_string()
}

/// An ELF file, and a profile without anchors as a kernel with this code would give it.
struct Image {
    elf: String,
    symbols: Symbols,
    profile: String,
}

impl Image {
    fn new(name: &str, elf: &str) -> Self {
        let symbols = Symbols::open(elf, &mut Default::default()).expect("is an ELF file");
        let image = symbols.elf.as_ref().expect("is an ELF file");
        let head = format!("# kprof-profile 1\n# tsc-hz 1000000000\n# hz 1000\n# load {LOAD:x}\n");
        let (mut text, mut caller) = (String::new(), 0);
        for number in (0..symbols.table.len()).step_by(symbols.table.len() / 900) {
            let symbol = symbols.table.get(number);
            let Some(code) = image.code(symbol.start).filter(|_| symbol.size > 32) else { continue };
            let code = &code[..code.len().min(symbol.size as usize)];
            let shown = |address: u64| address - image.base + LOAD;
            for (at, instruction) in Decoder::with_ip(64, code, symbol.start, DecoderOptions::NONE).iter().enumerate() {
                if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
                    caller = shown(instruction.next_ip());
                }
                if caller > 0 && at % 7 == number % 7 {
                    writeln!(text, "a 0 1 {:x} {caller:x}", shown(instruction.ip())).expect("memory takes everything");
                    break;
                }
            }
        }
        assert!(text.lines().count() > 300, "{}", text.lines().count());
        let text = sealed(&(head + &batch(0, &text)));
        Self { elf: elf.to_owned(), profile: file(&format!("{name}.profile"), &text), symbols }
    }

    /// The same symbols in the form of `nm`, relocated to another address; `sized` says which of them have a size.
    fn nm(&self, name: &str, from: Option<u64>, sized: impl Fn(usize) -> bool) -> String {
        let (table, mut text) = (&self.symbols.table, String::new());
        let base = from.map_or(self.symbols.elf.as_ref().expect("is an ELF file").base, |_| table.get(0).start);
        for number in 0..table.len() {
            let symbol = table.get(number);
            let start = symbol.start - base + from.unwrap_or(LOAD);
            let size = if sized(number) { format!("{:016x} ", symbol.size) } else { String::new() };
            writeln!(text, "{start:016x} {size}t {}", String::from_utf8_lossy(table.name(number))).expect("memory");
        }
        file(name, &text)
    }
}

/// The Redox symbols, each changed by `change`.
fn changed(name: &str, change: impl Fn(usize, u64, &str, &str) -> String) -> String {
    let text = fs::read_to_string(redox("syms.txt")).expect("is kept");
    let line = |(number, line): (usize, &str)| {
        let mut fields = line.splitn(3, ' ');
        let address = u64::from_str_radix(fields.next().expect("has an address"), 16).expect("is hex");
        match (fields.next().expect("has more"), fields.next()) {
            (size, Some(rest)) if size.len() == 16 => change(number, address, size, rest),
            (kind, rest) => change(number, address, "", &format!("{kind} {}", rest.unwrap_or_default())),
        }
    };
    file(name, &text.lines().enumerate().map(line).collect::<String>())
}

fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kprof-fold")).args(words).output().expect("kprof-fold runs")
}

fn said(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

const WARNING: &str = "does not look like the symbols of";

#[test]
fn five_wrong_images_are_noticed_and_ten_right_ones_are_not() {
    let own = Image::new("own", &std::env::current_exe().expect("has a path").display().to_string());
    let other = Image::new("other", env!("CARGO_BIN_EXE_kprof-fold"));
    let redox_profile = redox("profiling.txt");
    let nm = |address: u64, size: &str, rest: &str| {
        format!("{address:016x} {size}{}{rest}\n", if size.is_empty() { "" } else { " " })
    };
    let shifted = changed("shifted", |_, address, size, rest| nm(address + 0x1230, size, rest));
    let unsized_redox = changed("unsized", |_, address, _, rest| nm(address, "", rest));
    let assembly =
        changed("assembly", |number, address, size, rest| nm(address, if number % 3 == 0 { "" } else { size }, rest));
    let wrong = [
        (&redox_profile, own.nm("own-there", Some(REDOX_TEXT), |_| true)),
        (&redox_profile, shifted),
        (&own.profile, other.elf.clone()),
        (&other.profile, own.elf.clone()),
        (&own.profile, redox("syms.txt")),
    ];
    for (profile, syms) in &wrong {
        let done = run(&[profile, syms]);
        assert!(done.status.success() && said(&done).contains(WARNING), "{profile} {syms}: {}", said(&done));
        let done = run(&["--strict", profile, syms]);
        assert_eq!(done.status.code(), Some(2), "{profile} {syms}: {}", said(&done));
        let done = run(&["--strict", "--force", profile, syms]);
        assert_eq!(done.status.code(), Some(0), "{profile} {syms}: {}", said(&done));
        let done = run(&["doctor", profile, syms, "2.2"]);
        let found = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.code() == Some(1) && found.contains("wrong kernel image?"), "{profile} {syms}: {found}");
    }
    let right = [
        (&redox_profile, redox("syms.txt")),
        (&redox_profile, unsized_redox),
        (&redox_profile, assembly),
        (&own.profile, own.elf.clone()),
        (&own.profile, own.nm("own-sized", None, |_| true)),
        (&own.profile, own.nm("own-unsized", None, |_| false)),
        (&own.profile, own.nm("own-assembly", None, |number| number % 4 > 0)),
        (&other.profile, other.elf.clone()),
        (&other.profile, other.nm("other-sized", None, |_| true)),
        (&other.profile, other.nm("other-unsized", None, |_| false)),
    ];
    for (profile, syms) in &right {
        let done = run(&["--strict", profile, syms]);
        assert!(done.status.success() && !said(&done).contains(WARNING), "{profile} {syms}: {}", said(&done));
    }
}

#[test]
fn every_subcommand_that_names_functions_warns() {
    let profile = redox("profiling.txt");
    let syms = changed("verbs", |_, address, size, rest| {
        format!("{:016x} {size}{}{rest}\n", address + 0x1230, if size.is_empty() { "" } else { " " })
    });
    let commands: [&[&str]; 8] = [
        &["folded", &profile, &syms],
        &["flamegraph", &profile, &syms],
        &["report", &profile, &syms],
        &["script", &profile, &syms, "2.2"],
        &["export", "--to", "speedscope", &profile, &syms, "2.2"],
        &["top", "--once", &profile, &syms],
        &["diff", &profile, &profile, &syms],
        &["doctor", &profile, &syms, "2.2"],
    ];
    for command in commands {
        let done = run(command);
        let all = said(&done) + &String::from_utf8_lossy(&done.stdout);
        assert!(all.contains("addresses lie where these symbols have no code"), "{command:?}: {}", said(&done));
    }
}

#[test]
fn a_program_that_ran_elsewhere_is_found_and_another_one_is_refused() {
    const DISTANCE: u64 = 0x5555_5555_4000;
    let program = env!("CARGO_BIN_EXE_kprof-fold");
    let symbols = Symbols::open(program, &mut Default::default()).expect("is an ELF file");
    let (mut lines, mut names) = (String::new(), Vec::new());
    for number in (0..symbols.table.len()).step_by(symbols.table.len() / 200) {
        let Some((start, code)) = symbols.code(number).filter(|(_, code)| code.len() > 32) else { continue };
        for instruction in Decoder::with_ip(64, code, start, DecoderOptions::NONE).iter().take(4) {
            writeln!(lines, "me 1 1 {:x}", instruction.ip() + DISTANCE).expect("memory takes everything");
        }
        names.push(symbols.function(number).into_owned());
    }
    let profile = file("program.profile", &lines);
    let syms = file("program.syms", "ffffffff80001000 0000000000001000 T kmain\n");
    let fold = |file: &str, more: &[&str]| {
        let mut fold = Command::new(program);
        fold.args(["report", "--user", "--top", "0", "--user-syms", &format!("me={file}"), &profile, &syms, "1"]);
        fold.args(more).output().expect("kprof-fold runs")
    };
    let done = fold(program, &["--strict"]);
    let (out, said) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{said}");
    assert!(said.contains(&format!("me ran {DISTANCE:#x} higher than its symbols")), "{said}");
    assert!(!out.contains("[unknown]"), "{out}");
    let shown = names.iter().filter(|name| out.contains(name.as_str())).count();
    assert!(shown * 10 > names.len() * 9, "{shown} of {} names: {out}", names.len());

    let other = std::env::current_exe().expect("this test is a file");
    let other = other.to_str().expect("a path in UTF-8");
    let said = String::from_utf8(fold(other, &[]).stderr).expect("is text");
    assert!(said.contains(&format!("{other}: does not look like the symbols of me")), "{said}");
    let done = fold(other, &["--strict"]);
    assert_eq!(done.status.code(), Some(2), "{}", String::from_utf8_lossy(&done.stderr));
}
