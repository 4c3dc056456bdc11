//! The page of `html`: what does not need a browser. `cargo xtask test --only page` opens it in one.

use kprof_fold::output::page::stacks::{Source, Tree};
use kprof_fold::problems::Problems;
use kprof_fold::stacks::{Encoding, Stacks};
use kprof_fold::symbols::Symbols;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

const SYMS: &str = "ffffffff80001000 0000000000000100 T kmain\nffffffff80002000 0000000000000100 t mm::map\n";
const PROFILE: &str = "init 0 1f4 ffffffff80002010 ffffffff80001020\ninit 1 3f4 ffffffff80001010\n";

/// The page of the profile in a folder of this name.
fn page(folder: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(folder);
    fs::create_dir_all(&folder).unwrap();
    let [profile, syms] = [("profile.txt", PROFILE), ("syms.txt", SYMS)].map(|(name, text)| {
        fs::write(folder.join(name), text).unwrap();
        folder.join(name)
    });
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let done = fold.args(["html", "-q"]).args([profile, syms]).arg("1").output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn the_same_profile_in_another_folder_gives_the_same_page() {
    let (one, other) = (page("page-one"), page("page-other"));
    assert_eq!(one, other);
    assert!(one.contains("<title>profile.txt</title>") && !one.contains("page-one"));
}

#[test]
fn the_page_is_whole_and_names_nothing_outside_itself() {
    let page = page("page-alone");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    for outside in [" src=", "href=\"http", "@import", "url(", "fetch(", "XMLHttpRequest"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn a_frame_of_several_functions_is_marked_on_the_page_and_compared_without_the_mark() {
    let syms = b"ffffffff80001000 0000000000000100 t one\nffffffff80001000 0000000000000100 t two\n";
    let symbols =
        Symbols::read("syms", syms.to_vec(), std::io::empty(), &mut Problems::default()).expect("are symbols");
    let mut stacks = Stacks::new(Encoding::Words);
    let (stack, _) = stacks.of_words(&[0xffff_ffff_8000_1010]);
    let mut tree = Tree::new();
    tree.add(&Source { stacks: &stacks, symbols: &symbols, is_of_point: false }, [stack].into_iter());
    assert_eq!(tree.text()["frames"][0], "one (1 of 2 names)");
    assert_eq!(tree.names().collect::<Vec<_>>(), ["one"]);
}

#[test]
fn the_page_of_a_point_says_where_all_of_its_weight_is() {
    let inputs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/inputs");
    let page = |options: &[&str]| {
        let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
        fold.args(["html", "-q", "--event", "null.write"]).args(options);
        let done = fold.args(["events.profile", "five-functions.syms"].map(|name| inputs.join(name))).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    let row = |percent: &str, weight: &str, what: &str| {
        format!("<td class=\"number\">{percent} %</td><td class=\"number\">{weight}</td><td>{what}")
    };
    let weights = page(&[]);
    assert!(weights.contains("<title>events.profile: null.write</title>") && weights.contains("1300 bytes in all"));
    for (percent, weight, what) in
        [("69.2", "900", "recorded"), ("23.1", "300", "lost"), ("7.7", "100", "not recorded")]
    {
        assert!(weights.contains(&row(percent, weight, what)), "{what}");
    }
    let hits = page(&["--count"]);
    assert!(hits.contains("is, in hits") && hits.contains(&row("60.0", "3", "recorded")));
}

/// The head of the page of an event from golden inputs, and what was said on standard error.
fn page_of(event: &str, inputs: [&str; 2], options: &[&str]) -> String {
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/inputs");
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    fold.args(["html", "-q", "--event", event]).args(options);
    let done = fold.args(inputs.map(|name| golden.join(name))).current_dir(&golden).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn the_page_of_the_heap_says_what_was_not_freed_and_whether_that_is_certain() {
    let page = page_of("heap.live", ["heap.profile", "five-functions.syms"], &[]);
    assert!(page.contains("complete: no record of an allocation or of a free was lost"));
    assert!(page.contains("176790</td><td>recorded allocations that were not freed") && !page.contains("<td>lost"));
    let count = page_of("heap.live", ["heap.profile", "five-functions.syms"], &["--count"]);
    assert!(count.contains("is, in allocations") && count.contains("10</td><td>recorded allocations"));
}

#[test]
fn the_page_of_a_comparison_says_how_exactly_the_weights_are_known() {
    let compare = ["--compare", "events-on-cpus.profile"];
    let inputs = ["events-on-cpus.profile", "five-functions.syms"];
    let exact = page_of("lock.wait", inputs, &[&compare[..], &["--cpu", "1"]].concat());
    assert!(exact.contains("events-on-cpus.profile (OLD; this profile is NEW). Every hit is recorded, so there is no"));
    let sampled = page_of("lock.wait", inputs, &compare);
    assert!(sampled.contains("Not every hit of OLD and NEW was recorded, by choice"));
    assert!(sampled.contains("Lost hits may be of any function: the intervals are widened by all of them."));
}
