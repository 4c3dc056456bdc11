//! Decides whether a frame is library code or the kernel's own. Stage: symbolize.
//!
//! In: the name of a function, and the source file of its code if DWARF tells it. Out: yes or no. Library code is the
//! standard library and every crate that cargo fetched from a registry or a git repository, or that was vendored.
//! Tables charge inlined library code to the function that it was inlined into, because that is the code that a reader
//! can change.

/// The crates of the standard library, as they are named in functions.
const STANDARD: [&str; 5] = ["alloc", "compiler_builtins", "core", "std", "__rustc"];

/// Parts of the paths of source files that are not the kernel's own: the standard library as it was compiled by Rust's
/// developers, by a distribution or with `-Z build-std`, then what cargo downloads.
const FETCHED: [&str; 6] =
    ["/rustc/", "/rust/deps/", "/rustlib/src/rust/library/", "/library/core/src/", "/registry/src/", "/git/checkouts/"];

/// Where `cargo vendor` copies packages.
const VENDOR: &str = "/vendor/";

/// Whether a function is library code. `file` is the source file of its code, if it is known. `unit` gives the source
/// file, with the compilation directory, of the unit that the code is in: a kernel may itself be in a folder `vendor`,
/// so code in such a folder is library code only in units of something else.
pub fn is_library(name: &str, file: Option<&str>, unit: impl FnOnce() -> Option<String>) -> bool {
    let (crates, is_implementation) = crates(name);
    let is_standard = |name: &&str| STANDARD.contains(name);
    // Only the standard library can implement its own traits for its own and the built-in types.
    if crates.iter().all(is_standard) && (is_implementation || !crates.is_empty()) {
        return true;
    }
    let Some(file) = file else { return false };
    let is_vendored = || vendored(file).is_some_and(|package| vendored(&unit().unwrap_or_default()) != Some(package));
    FETCHED.iter().any(|part| file.contains(part)) || is_vendored()
}

/// The folder that `cargo vendor` has made for a package, if the file is in one.
fn vendored(file: &str) -> Option<&str> {
    let package = file.rfind(VENDOR)? + VENDOR.len();
    let length = file[package..].find('/')?;
    Some(&file[..package + length])
}

/// The crates that a function's name begins with, and whether the function is in an implementation (`impl`): `<A as
/// B>::f` has the crates of `A` and `B`. Built-in types and type parameters have no crate; neither have the types in
/// `<>` after a name.
fn crates(name: &str) -> (Vec<&str>, bool) {
    let Some(inside) = name.strip_prefix('<') else { return (crate_of(name).into_iter().collect(), false) };
    let mut depth = 0;
    let mut before = ' ';
    let is_outside = |letter: char| {
        match letter {
            '<' => depth += 1,
            // The `>` in the arrow of a function type closes no bracket.
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        before = letter;
        depth < 0
    };
    let inside = inside.find(is_outside).map_or(inside, |end| &inside[..end]);
    let (own_type, implemented) = split_as(inside);
    ([Some(own_type), implemented].into_iter().flatten().filter_map(crate_of).collect(), true)
}

/// Splits `A as B`, where `A` may have `<C as D>` in it.
fn split_as(inside: &str) -> (&str, Option<&str>) {
    let is_top = |at: &usize| {
        let before = inside[..*at].replace("->", "");
        before.matches('<').count() == before.matches('>').count()
    };
    match inside.match_indices(" as ").map(|(at, _)| at).find(is_top) {
        Some(at) => (&inside[..at], Some(&inside[at + " as ".len()..])),
        None => (inside, None),
    }
}

/// The crate of a path or type. For a reference, pointer, slice or `dyn`, it is the crate of the inner type.
fn crate_of(path: &str) -> Option<&str> {
    let mut path = path.trim_start_matches(['&', '*', '[', '(']);
    for word in ["mut ", "const ", "dyn ", "impl "] {
        path = path.strip_prefix(word).unwrap_or(path);
    }
    if path.starts_with('<') {
        return crates(path).0.first().copied();
    }
    let end = path.find("::")?;
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    // `kernel[1234]::f` is how v0 names are printed with their hash.
    let name = path[..end].split('[').next().unwrap_or_default();
    (!name.is_empty() && name.chars().all(is_name)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_standard_library_from_the_kernel() {
        for (name, is) in [
            ("core::sync::atomic::atomic_load", true),
            ("<u64 as core::ops::arith::Add>::add", true),
            ("<usize>::unchecked_add", true),
            ("<[u8]>::len", true),
            ("<&T as core::fmt::Display>::fmt", true),
            ("<core::slice::iter::Iter<T> as core::iter::traits::iterator::Iterator>::fold", true),
            ("<alloc::vec::Vec<kernel::mm::Page>>::push", true),
            ("<alloc::boxed::Box<fn(u8) -> kernel::A> as core::ops::function::FnOnce<()>>::call_once", true),
            ("core::ptr::drop_in_place<kernel::mm::Space>", true),
            ("core[b1e2]::slice::sort", true),
            ("__rustc::__rust_alloc", true),
            ("kernel::mm::map", false),
            ("kernel::core::start", false),
            ("<kernel::mm::Space as core::ops::drop::Drop>::drop", false),
            ("<u64 as kernel::fs::Word>::read", false),
            ("<&mut kernel::mm::Space as core::iter::traits::iterator::Iterator>::next", false),
            ("<<kernel::A as kernel::B>::C as core::clone::Clone>::clone", false),
            ("memcpy", false),
            ("", false),
            ("<", true),
        ] {
            assert_eq!(is_library(name, None, || None), is, "{name}");
        }
    }

    #[test]
    fn a_kernel_in_a_folder_named_vendor_is_no_library() {
        let is = |file, unit: &str| is_library("map_pages", Some(file), || Some(unit.to_owned()));
        assert!(!is("/src/vendor/kernel/src/mm.c", "/src/vendor/kernel/src/main.c"));
        assert!(is("/src/vendor/lock/src/lib.rs", "/src/vendor/kernel/src/main.rs"));
        assert!(is("/src/vendor/kernel/vendor/lock/src/lib.rs", "/src/vendor/kernel/src/main.rs/@/kernel.1"));
        assert!(is("/src/vendor/lock/src/lib.rs", "/src/kernel/main.rs"));
    }

    #[test]
    fn files_tell_other_crates_from_the_kernel() {
        let fetched = "/home/a/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/spin-0.10.0/src/mutex/spin.rs";
        for (name, file, is) in [
            ("spin::mutex::Mutex<T>::lock", fetched, true),
            ("<spin::Guard<T> as core::ops::drop::Drop>::drop", fetched, true),
            ("spin::mutex::Mutex<T>::lock", "/home/a/kernel/spin/src/mutex.rs", false),
            ("lock::take", "/home/a/.cargo/git/checkouts/lock-12ab/34cd/src/lib.rs", true),
            ("lock::take", "/home/a/kernel/vendor/lock/src/lib.rs", true),
            ("memcpy_fast", "/home/a/kernel/src/memcpy.c", false),
            ("kernel::mm::map", "/home/a/kernel/src/mm.rs", false),
            // A macro of the standard library can put its own lines into a function of the kernel.
            ("core::fmt::write", "/home/a/kernel/src/mm.rs", true),
        ] {
            assert_eq!(is_library(name, Some(file), || None), is, "{name} {file}");
        }
    }
}
