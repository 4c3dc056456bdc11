//! The page of `html`: what does not need a browser. `cargo xtask test --only page` opens it in one.
#![forbid(unsafe_code)]

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
