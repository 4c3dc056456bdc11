//! A module's name holds from its time until another module covers its place.

use crate::sealed::{batch, names, sealed};
use std::process::Command;

/// A sample at the place of a module, before and after another one was loaded there.
fn reloaded() -> String {
    let image = |tsc: u32, name: &str| {
        let place = "load=ffffffffc0000000 text=ffffffffc0000000-ffffffffc0001000";
        format!("# image tsc={tsc:x} {place} build-id=- name={name}\n")
    };
    let sample = |tsc: u32| format!("a 0 {tsc:x} ffffffffc0000010 ffffffff80001010\n");
    // The kernel reports its images again to a new reader.
    let images = names(&(image(10, "e1000") + &image(15, "e1000") + &image(30, "ext4")));
    let samples = batch(0, &[14, 20, 40, 50].map(sample).concat());
    sealed(&format!("# kprof-profile 1\n# tsc-hz 1000000000\n# hz 1000\n{images}{samples}"))
}

#[test]
fn samples_of_a_module_that_took_the_place_of_another_do_not_get_its_names() {
    let folder = tempfile::tempdir().expect("is writable");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("is writable");
    write("p.txt", &reloaded());
    write("syms", "ffffffff80001000 0000000000000100 T kmain\n");
    write("module", "0000000000000000 0000000000000100 t poll\n");
    let run = |words: &[&str]| {
        let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
        let done = fold.args(["folded", "-q", "p.txt", "syms"]).args(words).current_dir(folder.path()).output();
        let done = done.expect("kprof-fold runs");
        String::from_utf8([done.stdout, done.stderr].concat()).expect("is text")
    };
    let both = "the images e1000 and ext4 of p.txt were in the same place, one after the other; choose the time of one \
                of them with --between";
    assert_eq!(run(&["--image", "e1000=module"]).trim(), format!("kprof-fold: --image e1000: {both}"));
    assert_eq!(run(&["--image", "e1000=module", "--between", "0x1", "0x1e"]), "kmain;poll 2\n");
    assert_eq!(run(&["--image", "ext4=module", "--between", "0x1e", "end"]), "kmain;poll 2\n");
    let other = run(&["--image", "ext4=module", "--between", "0x1", "0x1e"]);
    assert_eq!(other.trim(), "kprof-fold: --image ext4: it was not loaded in the chosen time");
    assert_eq!(run(&[]), "kmain;[unknown] 4\n");
}
