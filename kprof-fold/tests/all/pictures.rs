//! The effects of options on tables and pictures: tasks, interrupts, generic instances, directions, lines.

use crate::sealed::{batch, sealed};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

const K: u64 = 0xffff_ffff_8000_0000;
const SYMS: &str = "ffffffff80001000 0000000000000100 T kmain\n\
    ffffffff80002000 0000000000000100 t list::push::<u8>\n\
    ffffffff80003000 0000000000000100 t list::push::<alloc::vec::Vec<u8>>\n\
    ffffffff80004000 0000000000000100 t <u8 as Copy>::copy\n";

fn file(name: &str, text: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("pictures-{name}"));
    fs::write(&path, text).expect("the test folder is writable");
    path.display().to_string()
}

/// A profile of the tasks `init`, `work 1` and `work 2`; the last one has interrupts off.
fn profile() -> String {
    let line = |task: &str, tsc: u32, facts: &str, leaf: u64| {
        format!("{task} 0 {tsc:x} {:x}{facts} {:x}\n", K + leaf + 0x10, K + 0x1020)
    };
    let off = " fffffffffffff001";
    [
        line("init", 1, "", 0x2000),
        line("work%201", 2, "", 0x3000),
        line("work%201", 3, "", 0x3000),
        line("work%202", 4, off, 0x4000),
    ]
    .concat()
}

fn run(name: &str, arguments: &[&str]) -> Output {
    let (profile, syms) = (file(&format!("{name}.profile"), &profile()), file(&format!("{name}.syms"), SYMS));
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let done = fold.args(arguments).args(["-q", &profile, &syms]).output().expect("kprof-fold runs");
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    done
}

fn out(name: &str, arguments: &[&str]) -> String {
    String::from_utf8(run(name, arguments).stdout).expect("is text")
}

#[test]
fn contexts_are_chosen_by_their_plain_names() {
    let push = "kmain;list::push::<alloc::vec::Vec<u8>> 2\n";
    let copy = "kmain;<u8 as Copy>::copy 1\n";
    assert_eq!(out("task", &["--task", "work 1"]), push);
    assert_eq!(out("task", &["--task", "work*"]), [copy, push].concat());
    let both = out("task", &["--task", "init", "--task", "work 2"]);
    assert_eq!(both, [copy, "kmain;list::push::<u8> 1\n"].concat());
    let (profile, syms) = (file("no-task.profile", &profile()), file("no-task.syms", SYMS));
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let done = fold.args(["--task", "wor", &profile, &syms]).output().expect("kprof-fold runs");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(
        done.status.code() == Some(2) && said.contains("no sample or hit is of such a task; did you mean `work 1`"),
        "{said}"
    );
}

#[test]
fn samples_with_interrupts_on_and_off_are_all_samples() {
    let count = |which: &str| {
        let text = out("irq", &[which]);
        text.lines().map(|line| line.rsplit(' ').next().expect("has a count").parse::<u64>().unwrap()).sum::<u64>()
    };
    assert_eq!((count("--irq-on"), count("--irq-off"), count("--user")), (3, 1, 4));
    assert_eq!(out("irq", &["--irq-off"]), "kmain;<u8 as Copy>::copy 1\n");
}

#[test]
fn instances_of_a_generic_function_have_one_frame() {
    assert_eq!(out("coalesced", &["--merge-generics"]), "kmain;<u8 as Copy>::copy 1\nkmain;list::push 3\n");
}

/// The vertical position and the title of each frame of an SVG.
fn frames(svg: &str) -> Vec<(f64, String)> {
    let one = |group: &str| {
        let title = group.split("</title>").next().expect("has a title").to_owned();
        let y = group.split(" y=\"").nth(1)?.split('"').next()?.parse().ok()?;
        Some((y, title))
    };
    svg.split("<title>").skip(1).filter_map(one).collect()
}

fn height(svg: &str, name: &str) -> f64 {
    let all = frames(svg);
    all.iter().find(|(_, title)| title.starts_with(name)).unwrap_or_else(|| panic!("{name} in {all:?}")).0
}

#[test]
fn roots_are_at_the_bottom_or_with_icicle_at_the_top() {
    let svg = out("up", &["flamegraph"]);
    assert!(height(&svg, "kmain (4 samples") > height(&svg, "list::push::&lt;u8&gt; (1 samples"), "{:?}", frames(&svg));
    let svg = out("down", &["flamegraph", "--icicle"]);
    assert!(height(&svg, "kmain (4 samples") < height(&svg, "list::push::&lt;u8&gt; (1 samples"), "{:?}", frames(&svg));
}

#[test]
fn reversed_the_leaves_are_roots() {
    let svg = out("reversed", &["flamegraph", "--reverse"]);
    let leaf = height(&svg, "list::push::&lt;alloc::vec::Vec&lt;u8&gt;&gt; (2 samples");
    assert!(leaf > height(&svg, "kmain (2 samples"), "{:?}", frames(&svg));
    assert!(!frames(&svg).iter().any(|(_, title)| title.starts_with("kmain (4")), "{:?}", frames(&svg));
}

#[test]
fn rough_places_stand_under_the_title() {
    let text = sealed(&format!("# kprof-profile 1\n# precision block\n{}", batch(0, &profile())));
    let (profile, syms) = (file("tcg.profile", &text), file("tcg.syms", SYMS));
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let done = fold.args(["flamegraph", "-q", &profile, &syms]).output().expect("kprof-fold runs");
    assert!(String::from_utf8_lossy(&done.stdout).contains("places are rough (multi-threaded TCG)"));
    assert!(!out("not-tcg", &["flamegraph"]).contains("places are rough"));
}

/// The color of a frame of an SVG: red, green, blue.
fn color(svg: &str, name: &str) -> [u8; 3] {
    let frame = svg.split("<title>").find(|frame| frame.starts_with(name)).unwrap_or_else(|| panic!("{name}: {svg}"));
    let numbers = frame.split("fill=\"rgb(").nth(1).and_then(|rest| rest.split(')').next()).expect("has a color");
    let numbers: Vec<u8> = numbers.split(',').map(|number| number.parse().expect("is a number")).collect();
    numbers.try_into().expect("has three parts")
}

#[test]
fn user_code_has_its_own_color_unless_the_kernel_has_a_function_of_that_name() {
    let lines = format!("init 0 1 {:x} {:x} 401010\ninit 0 2 {:x} 402010\n", K + 0x2010, K + 0x1020, K + 0x2010);
    let (profile, syms) = (file("user.profile", &lines), file("user.syms", SYMS));
    let user = file("user.user", "401000 0000000000000100 T main\n402000 0000000000000100 T kmain\n");
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    fold.args(["flamegraph", "-q", "--user", "--user-syms", &format!("init={user}"), &profile, &syms]);
    let svg = String::from_utf8(fold.output().expect("kprof-fold runs").stdout).expect("is text");
    let is_green = |[red, green, blue]: [u8; 3]| green > red && green > blue;
    assert!(is_green(color(&svg, "main (1 samples")), "{svg}");
    for kernel in ["kmain (1 samples", "list::push::&lt;u8&gt; (1 samples"] {
        assert!(!is_green(color(&svg, kernel)), "{kernel}: {svg}");
    }
    // The legend is below everything else, within the picture, and has the kinds that are there.
    let after = |text: &str| svg.split_once(text).expect("has it").1;
    let number =
        |rest: &str| rest.split_once('"').and_then(|(number, _)| number.parse::<f64>().ok()).expect("a number");
    let height = number(after("height=\""));
    let frames = svg.match_indices("<title>").map(|(at, _)| number(svg[at..].split_once(" y=\"").expect("a box").1));
    let legend = after("</svg>");
    let words: Vec<&str> = legend.split("</text>").filter_map(|one| Some(one.rsplit_once('>')?.1)).collect();
    assert_eq!(words[..2], ["kernel", "user"], "{legend}");
    let top = number(legend.split_once(" y=\"").expect("a box").1);
    assert!(frames.fold(0.0, f64::max) + 16.0 < top && top + 12.0 < height, "{top} of {height}");
}

#[test]
fn a_number_at_the_end_of_a_name_is_part_of_the_name() {
    let syms = file("numbers.syms", "ffffffff80001000 t pid 7\nffffffff80002000 T kmain\n");
    let samples = |cpu: u32| batch(cpu, &format!("a {cpu} 1 ffffffff80001010 ffffffff80002020\n"));
    let text = format!("# kprof-profile 1\n# tsc-hz 1000000000\n{}{}", samples(1), samples(2));
    let profile = file("numbers.profile", &sealed(&text));
    let drawn = |words: &[&str]| {
        let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
        let done = fold.args(["flamegraph", "-q"]).args(words).args([&profile, &syms]).output().expect("it runs");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let svg = drawn(&["--by", "cpu", "--reverse"]);
    assert!(svg.contains("CPU 1 (1 samples, 50.00%)") && svg.contains("CPU 2 (1 samples, 50.00%)"), "{svg}");
    assert!(drawn(&[]).contains("pid 7 (2 samples, 100.00%)"));
}

#[test]
fn the_weights_of_hits_keep_their_unit_and_folded_stacks_every_digit() {
    let syms = file("weights.syms", "ffffffff80001000 T kmain\nffffffff80002000 t read\n");
    let account = "# point-account tsc=9 cpu=1 weight=9007199254741002 recorded=2 lost=0 filtered=0 unit=ns point=p\n";
    let hit = |tsc: u32, weight: u64, at: &str| format!("!p a 1 {tsc} {weight} - {at} ffffffff80001010\n");
    let hits = [hit(1, 9_007_199_254_740_993, "ffffffff80002010"), hit(2, 9, "ffffffff80001030")].concat();
    let text = format!(
        "# kprof-profile 1\n# tsc-hz 1000000000\n# batch cpu=meta from=0 to=10\n# point tsc=1 id=1 unit=ns \
         state=record name=p\n{account}# end cpu=meta to=10\n# batch cpu=event-1 from=0 to=20\n{hits}# end \
         cpu=event-1 to=20 samples=2\n"
    );
    let profile = file("weights.profile", &sealed(&text));
    let run = |words: &[&str]| {
        let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
        let done = fold.args(words).args(["-q", "--event", "p", &profile, &syms]).output().expect("it runs");
        (String::from_utf8_lossy(&done.stdout).into_owned(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (folded, said) = run(&["folded"]);
    assert_eq!(folded, "kmain;kmain 9\nkmain;read 9007199254740993\n", "{said}");
    let (svg, said) = run(&["flamegraph"]);
    assert!(svg.contains("kmain (9,007,199,254,741,002 ns") && !svg.contains(" samples,"), "{said}{svg}");
}
