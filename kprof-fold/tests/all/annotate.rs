//! `annotate`: instructions beside source lines, code without lines, and where the source is looked for. The image is
//! this test program itself.
#![cfg(target_arch = "x86_64")]

use crate::sealed::{batch, names, sealed};
use base64::Engine as _;
use kprof_fold::output::annotate::code;
use kprof_fold::problems::Problems;
use kprof_fold::symbols::Symbols;
use kprof_format::marker::Marker;
use std::io::Read as _;
use std::process::Command;

const SLIDE: u64 = 0xffff_ffff_8000_0000;

#[inline(never)]
fn the_sampled_function(value: u64) -> u64 {
    std::hint::black_box(value).wrapping_mul(3)
}

/// What `annotate` prints for samples at these distances from the start of a function.
fn annotate(function: &str, offsets: &[u64], more: &[&str]) -> String {
    std::hint::black_box(the_sampled_function(5));
    let file = std::env::current_exe().expect("has a path").display().to_string();
    let symbols = Symbols::open(&file, &mut Problems::default()).expect("is an ELF file");
    let start = symbols.table.named(function).next().unwrap_or_else(|| panic!("no {function}")) + SLIDE;
    let samples: String = offsets.iter().map(|offset| format!("a 0 1 {:x}\n", start + offset)).collect();
    printed(function, &symbols, &file, &batch(0, &samples), more)
}

/// What `annotate` prints for a profile with these batches.
fn printed(function: &str, symbols: &Symbols, file: &str, batches: &str, more: &[&str]) -> String {
    let load = symbols.elf.as_ref().expect("is an ELF file").base + SLIDE;
    let text = sealed(&format!("# kprof-profile 1\n# load {load:x}\n{batches}"));
    let folder = tempfile::tempdir().expect("the test folder is writable");
    let profile = folder.path().join("profile");
    std::fs::write(&profile, text).expect("the test folder is writable");
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let done = fold.args(["annotate", "-q"]).args(more).arg(&profile).arg(file).arg(function).output();
    let done = done.expect("kprof-fold runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// The words of the first row that has this text.
fn row<'a>(text: &'a str, has: &str) -> Vec<&'a str> {
    let found = text.lines().find(|line| line.contains(has)).unwrap_or_else(|| panic!("no {has} in\n{text}"));
    found.split_whitespace().collect()
}

/// `_start` is assembly of the C library, which has no lines. Its second instruction is `mov r9, rdx`.
#[test]
fn a_function_without_lines_is_shown_as_instructions_with_their_share() {
    let text = annotate("_start", &[0, 0, 0, 2, 3], &[]);
    assert!(text.contains("5 samples innermost, 5 anywhere in the stack"), "{text}");
    assert!(!text.contains("  line"), "{text}");
    assert_eq!(row(&text, "xor ebp, ebp")[..2], ["60.00", "60.00"], "{text}");
    // Both addresses are in this instruction.
    assert_eq!(row(&text, "mov r9, rdx")[..2], ["40.00", "40.00"], "{text}");
    // Instructions far from any sample are left out, unless all are asked for.
    assert!(text.contains("pop rsi") && !text.contains("hlt"), "{text}");
    assert!(annotate("_start", &[0], &["--instructions"]).contains("hlt"));
}

/// The address of a hit is a return address: it belongs to the instruction before it, which has called the point.
#[test]
fn the_hits_of_a_point_are_shown_at_their_call_with_their_weight() {
    let file = std::env::current_exe().expect("has a path").display().to_string();
    let symbols = Symbols::open(&file, &mut Problems::default()).expect("is an ELF file");
    let start = symbols.table.named("_start").next().expect("every program has it");
    for (offset, first, text) in [(0, 0, "xor ebp, ebp"), (1, 0, "xor ebp, ebp"), (4, 2, "mov r9, rdx")] {
        assert_eq!(code::holding(&symbols, start + offset), (start + first, text.to_owned()));
    }
    let hit = |after: u64, weight: u64| format!("!p a 1 5 {weight} - {:x}\n", start + SLIDE + after);
    let account = "# point-account tsc=9 cpu=1 weight=450 recorded=2 lost=1 filtered=1 asked-weight=440 lost-weight=40 \
                   unit=bytes point=p\n";
    let events = format!("# batch cpu=event-1 from=0 to=9\n{}{}", hit(2, 300), hit(5, 100));
    let batches = names(account) + &events + "# end cpu=event-1 to=9 samples=2\n";
    let text = printed("_start", &symbols, &file, &batches, &["--event", "p"]);
    assert!(text.contains("400 bytes innermost, 400 anywhere in the stack"), "{text}");
    assert!(text.contains("note: 40 bytes lost and 10 bytes not recorded may be in any function"), "{text}");
    assert_eq!(row(&text, "xor ebp, ebp")[..2], ["75.00", "75.00"], "{text}");
    assert_eq!(row(&text, "mov r9, rdx")[..2], ["25.00", "25.00"], "{text}");
    let text = printed("_start", &symbols, &file, &batches, &["--event", "p", "--count"]);
    assert!(text.contains("2 hits innermost"), "{text}");
    assert_eq!(row(&text, "xor ebp, ebp")[..2], ["50.00", "50.00"], "{text}");
}

/// What was freed is in no line, and what was allocated and not freed is at the call that allocated it.
#[test]
fn what_the_heap_has_not_freed_is_shown_at_the_lines_that_allocated_it() {
    let file = std::env::current_exe().expect("has a path").display().to_string();
    let symbols = Symbols::open(&file, &mut Problems::default()).expect("is an ELF file");
    let start = symbols.table.named("_start").next().expect("every program has it") + SLIDE;
    let alloc = |number: u64, after: u64, bytes: u64| {
        format!("!heap.alloc a 1 {number} {bytes} {number},{number}000 {:x}\n", start + after)
    };
    let events = format!(
        "# batch cpu=event-1 from=0 to=9\n{}{}{}!heap.free a 1 9 700 2,2000 {start:x}\n",
        alloc(1, 2, 300),
        alloc(2, 2, 700),
        alloc(3, 5, 100)
    );
    let point = |name: &str, hits: u64, bytes: u64, lost: u64| {
        format!(
            "# point-account tsc=9 cpu=1 weight={bytes} recorded={hits} lost={lost} asked-weight={bytes} unit=bytes \
             point={name}\n"
        )
    };
    let shown = |lost: u64, more: &[&str]| {
        let accounts = point("heap.alloc", 3, 1100, 0) + &point("heap.free", 1, 700, lost);
        let batches = names(&accounts) + &events + "# end cpu=event-1 to=9 samples=4\n";
        printed("_start", &symbols, &file, &batches, &[&["--event", "heap.live"], more].concat())
    };
    let text = shown(0, &[]);
    assert!(text.contains("400 bytes innermost, 400 anywhere in the stack") && !text.contains("note:"), "{text}");
    assert_eq!(row(&text, "xor ebp, ebp")[..2], ["75.00", "75.00"], "{text}");
    assert_eq!(row(&text, "mov r9, rdx")[..2], ["25.00", "25.00"], "{text}");
    assert!(shown(0, &["--count"]).contains("2 allocations innermost"), "{text}");
    assert!(shown(1, &[]).contains("note: records of allocations or frees were lost"), "{text}");
}

/// The page has the call that led to a point, and not the bytes at the end of it as another instruction.
#[test]
fn the_page_of_a_point_has_the_instruction_that_holds_the_address_of_a_hit() {
    std::hint::black_box(the_sampled_function(5));
    let file = std::env::current_exe().expect("has a path").display().to_string();
    let symbols = Symbols::open(&file, &mut Problems::default()).expect("is an ELF file");
    let start = symbols.table.named("the_sampled_function").next().expect("is there");
    // The last byte of an instruction of two bytes or more.
    let last = (1..40).map(|offset| start + offset).find(|at| {
        let [here, next] = [*at, at + 1].map(|address| code::holding(&symbols, address).0);
        here < *at && here != next
    });
    let last = last.expect("has such an instruction");
    let (first, text) = code::holding(&symbols, last);
    let account = "# point-account tsc=9 cpu=1 weight=300 recorded=1 asked-weight=300 unit=bytes point=p\n";
    let event = format!("!p a 1 5 300 - {:x}\n", last + 1 + SLIDE);
    let events = format!("# batch cpu=event-1 from=0 to=9\n{event}# end cpu=event-1 to=9 samples=1\n");
    let load = symbols.elf.as_ref().expect("is an ELF file").base + SLIDE;
    let head = format!("# kprof-profile 1\n# tsc-hz 1000000000\n# load {load:x}\n");
    let folder = tempfile::tempdir().expect("the test folder is writable");
    let profile = folder.path().join("profile");
    std::fs::write(&profile, sealed(&(head + &names(account) + &events))).expect("the test folder is writable");
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let done = fold.args(["html", "-q", "--event", "p"]).arg(&profile).arg(&file).output().expect("kprof-fold runs");
    let page = String::from_utf8(done.stdout).expect("is text");
    let data = page.split("id=\"data\">").nth(1).and_then(|rest| rest.split('<').next()).expect("has data");
    let packed = base64::engine::general_purpose::STANDARD.decode(data).expect("is Base64");
    let mut bytes = Vec::new();
    flate2::read::ZlibDecoder::new(&packed[..]).read_to_end(&mut bytes).expect("is compressed");
    let length = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes")) as usize;
    let facts: serde_json::Value = serde_json::from_slice(&bytes[4..4 + length]).expect("is JSON");
    let instruction = &facts["tree"]["instructions"][0];
    assert_eq!(instruction[0], format!("{:x}", first + SLIDE));
    // Its operand may be an address, which has moved with the image.
    let mnemonic = |text: &str| text.split(' ').next().map(str::to_owned);
    assert_eq!(mnemonic(instruction[1].as_str().expect("is text")), mnemonic(&text), "{instruction}");
    assert_eq!(facts["event"]["unit"], "bytes");
}

#[test]
fn instructions_stand_below_their_source_line() {
    // With frame pointers or without, the first instruction is of the line where the function begins.
    let text = annotate("the_sampled_function", &[0], &[]);
    let number = include_str!("annotate.rs").lines().position(|line| line.starts_with("fn the_sampled_function"));
    let number = number.expect("is there") + 1;
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.contains("fn the_sampled_function")).expect("the source is found");
    assert_eq!(lines[at].split_whitespace().take(3).collect::<Vec<_>>(), ["100.00", "100.00", &number.to_string()]);
    let below: Vec<&str> = lines[at + 1].split_whitespace().collect();
    assert!(below[..2] == ["100.00", "100.00"] && below[2].starts_with("ffffffff"), "{text}");
}

#[test]
fn the_source_is_taken_from_the_folder_that_is_given() {
    let folder = tempfile::tempdir().expect("the test folder is writable");
    std::fs::create_dir_all(folder.path().join("tests/all")).expect("is writable");
    let moved = "// moved\n".repeat(100);
    std::fs::write(folder.path().join("tests/all/annotate.rs"), moved).expect("is writable");
    let folder = folder.path().display().to_string();
    let text = annotate("the_sampled_function", &[0], &["--source", &folder]);
    assert!(text.contains("// moved") && !text.contains("fn the_sampled_function"), "{text}");
}

#[test]
fn a_caller_that_only_a_candidate_names_counts_as_in_the_report() {
    std::hint::black_box(the_sampled_function(5));
    let file = std::env::current_exe().expect("has a path").display().to_string();
    let symbols = Symbols::open(&file, &mut Problems::default()).expect("is an ELF file");
    let [leaf, caller] = ["the_function_around_it", "the_sampled_function"]
        .map(|name| symbols.table.named(name).next().unwrap_or_else(|| panic!("no {name}")));
    assert!(symbols.lacks_frame(leaf), "its first instruction is before its stack frame");
    let sample = |at: u64| format!("a 0 1 {:x} {:x} {:x}\n", at, Marker::Candidate.encode(), caller + 4 + SLIDE);
    let text = printed("the_sampled_function", &symbols, &file, &batch(0, &sample(leaf + SLIDE)), &[]);
    assert!(text.contains("0 samples innermost, 1 anywhere in the stack"), "{text}");
}
