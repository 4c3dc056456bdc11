//! Probes: which functions of a kernel can have one, and what a profile with probes shows.
//!
//! The kernel is a small ELF file that the test writes: hand-made machine code, constant data with a jump table, and a
//! pointer to a function as a linker makes it for code that was compiled for any address. The file is not executed.

use crate::sealed::{names, sealed};
use kprof_fold::probes::body::Body;
use kprof_fold::probes::handlers::Handlers;
use kprof_fold::problems::Problems;
use kprof_fold::symbols::Symbols;
use std::path::PathBuf;
use std::process::Command;

/// Where the code of the kernel is; a page after it is the data. A page in the file too.
const TEXT: u64 = 0xffff_ffff_8020_0000;
const DATA: u64 = TEXT + PAGE;
const PAGE: u64 = 0x1000;
/// Each function has as many bytes of space.
const SPACE: u64 = 0x20;

/// `call` or `jmp` from the instruction at `at` in the function `from` to the function `to`.
fn near(opcode: u8, (from, at): (u64, u64), to: u64) -> Vec<u8> {
    let distance = (to * SPACE) as i32 - (from * SPACE + at + 5) as i32;
    [&[opcode][..], &distance.to_le_bytes()].concat()
}

/// The functions: name, code, whether the symbol has a size.
fn functions() -> Vec<(&'static str, Vec<u8>, bool)> {
    let call = |place, to| near(0xe8, place, to);
    let simple = vec![0x55, 0x5d, 0xc3];
    // call [rip + distance to the pointer in the data]; ret
    let through_pointer = |from: u64| {
        let distance = (PAGE + 0x10) as i32 - (from * SPACE + 1 + 6) as i32;
        [&[0x55, 0xff, 0x15][..], &distance.to_le_bytes(), &[0x5d, 0xc3]].concat()
    };
    vec![
        // 0 and 1: entry stubs. 2: the breakpoint handler. 3: before it. 4 and 5: called in an NMI.
        ("nmi_entry", [call((0, 0), 4), vec![0x48, 0xcf]].concat(), true),
        ("trap_3", [call((1, 0), 3), call((1, 5), 2), call((1, 10), 6), vec![0x48, 0xcf]].concat(), true),
        ("_ZN6kernel4trap10breakpoint17h0123456789abcdefE", simple.clone(), true),
        ("kernel::trap::before", simple.clone(), true),
        ("kernel::trap::in_nmi", through_pointer(4), true),
        ("kernel::trap::by_pointer", simple.clone(), true),
        ("kernel::trap::after", simple.clone(), true),
        // 7: returns, and a tail call.
        (
            "_ZN6kernel2fs4read17h0123456789abcdefE",
            [&[0x55, 0x85, 0xff, 0x74, 2, 0x5d, 0xc3, 0x5d][..], &near(0xe9, (7, 8), 8)].concat(),
            true,
        ),
        // 8: never ends. 9: a jump table. 10: it has no frame. 11: jumps into 10. 12: no size. 13: a call of any code.
        ("kernel::fs::serve", vec![0x55, 0xf4, 0xeb, 0xfd], true),
        (
            "kernel::fs::choose",
            vec![0x55, 0x83, 0xf8, 1, 0x77, 7, 0xff, 0x24, 0xc5, 0, 0x10, 0x20, 0x80, 0x5d, 0xc3, 0x90, 0x5d, 0xc3],
            true,
        ),
        ("kernel::mm::leaf", vec![0x90, 0xc3], true),
        ("kernel::mm::odd", [&[0x55, 0x5d][..], &near(0xe9, (11, 2), 7)].concat(), true),
        ("kernel::mm::unsized", simple.clone(), false),
        ("kernel::mm::any\u{1b}", vec![0x55, 0x5d, 0xff, 0xe0], true),
        // 14: calls the breakpoint handler.
        ("kernel::trap::enter", [&[0x55][..], &call((14, 1), 2), &[0x5d, 0xc3]].concat(), true),
    ]
}

/// Writes an ELF file with the functions and the data.
fn kernel(name: &str, functions: &[(&str, Vec<u8>, bool)]) -> String {
    let mut text = vec![0xcc; PAGE as usize];
    let (mut symbols, mut names) = (vec![0; 24], vec![0]);
    for (number, (name, code, has_size)) in functions.iter().enumerate() {
        let at = number * SPACE as usize;
        text[at..at + code.len()].copy_from_slice(code);
        symbols.extend((names.len() as u32).to_le_bytes());
        // Global function, in section 1.
        symbols.extend([0x12, 0, 1, 0]);
        symbols.extend((TEXT + at as u64).to_le_bytes());
        symbols.extend((if *has_size { code.len() as u64 } else { 0 }).to_le_bytes());
        names.extend(name.as_bytes());
        names.push(0);
    }
    let data: Vec<u8> = [TEXT + 9 * SPACE + 13, TEXT + 9 * SPACE + 16, TEXT + 5 * SPACE]
        .into_iter()
        .flat_map(u64::to_le_bytes)
        .collect();
    let words = |list: &[u64]| list.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let halves = |list: &[u32]| list.iter().flat_map(|half| half.to_le_bytes()).collect::<Vec<u8>>();
    let section_names = b"\0.text\0.symtab\0.strtab\0";
    let place_of_symbols = 2 * PAGE + 0x100;
    let place_of_names = place_of_symbols + symbols.len() as u64;
    let place_of_section_names = place_of_names + names.len() as u64;
    let place_of_sections = place_of_section_names + section_names.len() as u64;
    // ELF64, little endian; executable, x86_64.
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    file.extend(words(&[TEXT, 64, place_of_sections]));
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 2, 0, 64, 0, 5, 0, 4, 0]);
    // Two segments: readable and executable; readable.
    for (flags, at, address, size) in [(5, PAGE, TEXT, PAGE), (4, 2 * PAGE, DATA, data.len() as u64)] {
        file.extend(halves(&[1, flags]));
        file.extend(words(&[at, address, address, size, size, PAGE]));
    }
    file.resize(PAGE as usize, 0);
    file.extend(text);
    file.extend(data);
    file.resize(place_of_symbols as usize, 0);
    file.extend(&symbols);
    file.extend(&names);
    file.extend(section_names);
    // Sections: none, the code, symbols, their names, the names of sections.
    let sections = [
        (0, [0, 0], [0; 4], [0, 0], [0, 0]),
        (1, [1, 6], [TEXT, PAGE, PAGE, 0], [0, 0], [16, 0]),
        (7, [2, 0], [0, place_of_symbols, symbols.len() as u64, 0], [3, 1], [8, 24]),
        (15, [3, 0], [0, place_of_names, names.len() as u64, 0], [0, 0], [1, 0]),
        (15, [3, 0], [0, place_of_section_names, section_names.len() as u64, 0], [0, 0], [1, 0]),
    ];
    for (name, [kind, flags], [address, at, size, _], links, [align, entry]) in sections {
        file.extend(halves(&[name, kind]));
        file.extend(words(&[u64::from(flags), address, at, size]));
        file.extend(halves(&links));
        file.extend(words(&[align, entry]));
    }
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("probes-{name}.elf"));
    std::fs::write(&path, file).expect("the test folder is writable");
    path.display().to_string()
}

/// The exit code of `kprof-fold probes`, what it wrote, and what it said.
fn run(words: &[&str]) -> (Option<i32>, String, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_kprof-fold")).arg("probes").args(words).output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (done.status.code(), text(&done.stdout), text(&done.stderr))
}

#[test]
fn every_function_of_a_kernel_is_a_place_or_has_a_reason() {
    let (code, out, said) = run(&[&kernel("whole", &functions())]);
    let handler = "the handlers of NMIs and breakpoints may execute it";
    let expected = format!(
        "# kprof-probes 1\n# build-id -\n# load ffffffff80200000\n\
        # refused: nmi_entry: does not begin with `push rbp`\n\
        # refused: trap_3: does not begin with `push rbp`\n\
        # refused: kernel::trap::breakpoint: {handler}\n\
        # refused: kernel::trap::before: {handler}\n\
        # refused: kernel::trap::in_nmi: {handler}\n\
        # refused: kernel::trap::by_pointer: {handler}\n\
        ffffffff802000c0 2 kernel::trap::after\n\
        ffffffff802000e0 6,8 kernel::fs::read\n\
        ffffffff80200100 - kernel::fs::serve\n\
        ffffffff80200120 e,11 kernel::fs::choose\n\
        # refused: kernel::mm::leaf: does not begin with `push rbp`\n\
        ffffffff80200160 2 kernel::mm::odd\n\
        # refused: kernel::mm::unsized: the symbol table does not tell its size\n\
        # refused: kernel::mm::any\\u{{1b}}: the indirect jump at +2 may leave it\n\
        # refused: kernel::trap::enter: {handler}\n"
    );
    assert_eq!((code, out), (Some(0), expected), "{said}");
    assert!(said.contains("5 functions with 6 exits can be probed, 10 cannot"), "{said}");
    assert!(said.contains("handlers of NMIs and breakpoints: nmi_entry, kernel::trap::breakpoint"), "{said}");
    assert!(!said.contains("through pointers"), "{said}");
}

#[test]
fn patterns_choose_functions_and_a_mistyped_one_is_an_error() {
    let kernel = kernel("patterns", &functions());
    let (code, out, said) = run(&[&kernel, "kernel::fs::*", "leaf", "-q"]);
    let names: Vec<&str> = out.lines().skip(3).map(|line| line.rsplit("::").next().unwrap()).collect();
    assert_eq!((code, &said[..]), (Some(0), ""));
    assert_eq!(names, ["read", "serve", "choose", "leaf: does not begin with `push rbp`"]);
    let (code, out, said) = run(&[&kernel, "kernel::fs::raed"]);
    assert_eq!((code, &out[..]), (Some(2), ""));
    assert!(said.contains("no function `kernel::fs::raed`; did you mean `kernel::fs::read`"), "{said}");
}

#[test]
fn a_kernel_without_known_handlers_is_refused_until_they_are_given() {
    let mut functions = functions();
    functions[0].0 = "vector_2";
    functions[2].0 = "kernel::trap::int3";
    let kernel = kernel("handlers", &functions);
    let (code, out, said) = run(&[&kernel]);
    assert_eq!((code, &out[..]), (Some(2), ""));
    assert!(said.contains("no function that handles breakpoints") && said.contains("--handler NAME"), "{said}");
    let (code, out, said) = run(&[&kernel, "--handler", "vector_2", "--handler", "int3", "trap::*"]);
    assert_eq!(code, Some(2), "a star fits whole names only: {out}{said}");
    let (code, out, said) = run(&[&kernel, "--handler", "vector_2", "--handler", "int3", "kernel::trap::*"]);
    assert_eq!((code, out.matches("may execute it").count(), out.lines().count()), (Some(0), 5, 9), "{out}{said}");
    let (code, _, said) = run(&[&kernel, "--handler", "vector_3"]);
    assert!(code == Some(2) && said.contains("no such function; did you mean `vector_2`"), "{said}");
}

#[test]
fn what_a_handler_calls_through_a_pointer_is_said_to_be_unknown() {
    let mut functions = functions();
    // call rax; pop rbp; ret
    functions[3].1 = vec![0x55, 0xff, 0xd0, 0x5d, 0xc3];
    let (code, _, said) = run(&[&kernel("pointers", &functions)]);
    assert!(code == Some(0) && said.contains("Such calls are in kernel::trap::before\n"), "{said}");
}

#[test]
fn a_jump_from_elsewhere_into_a_function_and_a_symbol_in_it_are_reasons() {
    let mut functions = functions();
    // To the third byte of kernel::fs::read; and kernel::fs::serve reaches into the next function.
    functions[11].1 = [&[0x55, 0x5d][..], &near(0xe9, (11, 2), 7)].concat();
    functions[11].1[3] += 2;
    functions[8].1.resize(SPACE as usize + 1, 0x90);
    let (_, out, said) = run(&[&kernel("inside", &functions), "read", "serve"]);
    assert!(
        out.contains("kernel::fs::read: kernel::mm::odd jumps into it, past its first instruction\n"),
        "{out}{said}"
    );
}

#[test]
fn a_list_of_symbols_and_a_missing_file_are_errors() {
    let list = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("probes-list.txt");
    std::fs::write(&list, "0000000000001000 0000000000000010 T nmi_entry\n").expect("the test folder is writable");
    let (code, _, said) = run(&[list.to_str().unwrap()]);
    assert!(
        code == Some(2) && said.contains("is no ELF file for x86_64: give the kernel as the linker made it"),
        "{said}"
    );
    let (code, _, said) = run(&["/nonexistent/kernel"]);
    assert!(code == Some(2) && said.contains("cannot open /nonexistent/kernel"), "{said}");
}

/// A profile of the kernel, `slide` higher than its file, with hits of the probes on two functions.
fn profile(name: &str, slide: u64) -> String {
    let [read, serve] = [7, 8].map(|number| TEXT + slide + number * SPACE);
    let account = |address: u64, what: &str| {
        let what = format!("weight=3000 {what} asked-weight=3000 log2-10=2");
        format!("# point-account tsc=9 cpu=1 {what} unit=ns point=probe.{address:016x}\n")
    };
    let accounts = account(read, "recorded=2") + &account(serve, "filtered=2");
    let event = |tsc: u64| format!("!probe.{read:016x} sh 1 {tsc:x} 1500 - {:x} {:x}\n", read + 6, serve + 1);
    let events = format!(
        "# batch cpu=event-1 from=0 to=20\n{}{}# end cpu=event-1 to=20 samples=2\n",
        event(1_000_000_000),
        event(2_000_000_000)
    );
    let head = "# kprof-profile 1\n# tsc-hz 1000000000\n# boot 7\n# cpus 2\n";
    let text = format!("{head}# load {:x}\n{}{events}", TEXT + slide, names(&accounts));
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("probes-{name}.profile"));
    std::fs::write(&path, sealed(&text)).expect("the test folder is writable");
    path.display().to_string()
}

/// The exit code of `kprof-fold`, what it wrote, and what it said.
fn fold(words: &[&str]) -> (Option<i32>, String, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_kprof-fold")).args(words).output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (done.status.code(), text(&done.stdout), text(&done.stderr))
}

#[test]
fn a_probe_is_shown_and_found_by_the_name_of_its_function_also_in_a_moved_kernel() {
    let kernel = kernel("names", &functions());
    for slide in [0, 0x1200_0000] {
        let (profile, raw) = (profile("names", slide), format!("probe.{:016x}", TEXT + slide + 7 * SPACE));
        for name in ["probe.kernel::fs::read", "probe.fs::read", "probe.*::read", &raw] {
            let (code, out, said) = fold(&["--event", name, &profile, &kernel]);
            assert_eq!((code, &out[..]), (Some(0), "kernel::fs::serve;kernel::fs::read 3000\n"), "{name}: {said}");
            assert!(said.contains("probe.kernel::fs::read: 2 hits = 2 recorded"), "{name}: {said}");
        }
        for (words, shown) in [
            (&["info", &profile, &kernel][..], "  point probe.kernel::fs::read: 2 hits, 3000 ns in all"),
            (&["latency", &profile, &kernel, "--event", "probe.kernel::fs::*"], "probe.kernel::fs::serve: 2 hits"),
            (&["latency", &profile, &kernel, "-o", "-"], "probe.kernel::fs::read: 2 hits, 3000 ns"),
            (&["script", "--event", "probe.fs::read", &profile, &kernel], "1500 ns: probe.kernel::fs::read:"),
            (&["report", "--event", "probe.fs::read", &profile, &kernel], "probe.kernel::fs::read"),
            (&["flamegraph", "--event", "probe.fs::read", &profile, &kernel], "3000 ns of probe.kernel::fs::read"),
            (
                &["export", "--to", "speedscope", "--event", "probe.fs::read", &profile, &kernel],
                "probe.kernel::fs::read",
            ),
            (&["export", "--to", "perfetto", "--event", "probe.fs::read", &profile, &kernel], "probe.kernel::fs::read"),
            (&["info", &profile], &raw),
        ] {
            let (code, out, said) = fold(words);
            assert!(code == Some(0) && out.contains(shown), "{words:?}: {said}{out}");
        }
    }
}

#[test]
fn a_name_of_several_probes_or_of_none_is_an_error_that_names_them() {
    let (kernel, profile) = (kernel("several", &functions()), profile("several", 0));
    let (code, _, said) = fold(&["--event", "probe.kernel::fs::*", &profile, &kernel]);
    let raw = format!("probe.{:016x} (probe.kernel::fs::read)", TEXT + 7 * SPACE);
    assert!(code == Some(2) && said.contains("means 2 points; give one of ") && said.contains(&raw), "{said}");
    let (code, _, said) = fold(&["--event", "probe.fs::raed", &profile, &kernel]);
    assert!(code == Some(2) && said.contains("did you mean `probe.kernel::fs::read`"), "{said}");
    let (code, _, said) = fold(&["--event", "probe.serve", &profile, &kernel]);
    let todo = "record them, with the ctl command `event probe.* record`";
    assert!(code == Some(2) && said.contains(todo), "{said}");
    let (code, _, said) = fold(&["--event", "probe.serve", "-", &kernel]);
    assert!(code == Some(2) && said.contains("reads the profile and the symbols twice"), "{said}");
    let (code, _, said) = fold(&["info", &profile, "/nonexistent"]);
    assert!(code == Some(2) && said.contains("cannot open /nonexistent"), "{said}");
    let (code, _, said) = fold(&["latency", &profile, "probe.*"]);
    assert!(code == Some(2) && said.contains("a point is named by --event probe.*"), "{said}");
}

/// Functions with the names of kprof's, for the next test.
mod kprof {
    #[inline(always)]
    pub fn on_timer(value: u64) -> u64 {
        std::hint::black_box(value).rotate_left(9)
    }

    #[inline(always)]
    pub fn on_breakpoint(value: u64) -> u64 {
        std::hint::black_box(value).rotate_left(5)
    }
}

#[inline(never)]
fn takes_ticks(value: u64) -> u64 {
    std::hint::black_box(kprof::on_timer(value)) + 1
}

#[inline(never)]
fn takes_breakpoints(value: u64) -> u64 {
    std::hint::black_box(kprof::on_breakpoint(value)) + 1
}

#[inline(never)]
fn takes_nothing(value: u64) -> u64 {
    std::hint::black_box(value) + 1
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_handler_is_found_by_what_was_inlined_into_it() {
    assert_ne!(takes_ticks(1) + takes_breakpoints(2), takes_nothing(3));
    let file = std::env::current_exe().expect("has a path").display().to_string();
    let symbols = Symbols::open(&file, &mut Problems::default()).expect("is an ELF file");
    let number =
        |name: &str| symbols.table.find(symbols.table.named(name).next().expect("is there")).expect("is there");
    let numbers = ["takes_nothing", "takes_ticks", "takes_breakpoints"].map(number);
    let names = numbers.map(|number| symbols.plain_name(number).into_owned());
    let bodies = numbers.map(|number| symbols.code(number).map(|(start, code)| Body::decode(code, start)));
    let elf = symbols.elf.as_ref().expect("is an ELF file");
    let found = Handlers::find(&names, &bodies, elf, &[]);
    assert_eq!(found, Handlers { ticks: [1].into(), breakpoints: [2].into() });
}
