//! Makes names fit for the output: demangles them, and replaces characters that would break a folded line. Stage:
//! symbolize.
//!
//! In: a raw name of a symbol. Out: the name of a frame. Only legacy and v0 manglings are changed (their hash is
//! removed). `;` becomes `:` because it separates frames. Bytes that are not UTF-8 become U+FFFD. Control characters
//! are escaped, because they would split lines, are not allowed in XML, or would control the terminal.

use std::borrow::Cow;

/// The frame's name for a raw symbol name, before [`clean`].
pub fn frame_name(raw: &[u8]) -> Cow<'_, str> {
    // Names are nearly always UTF-8, and the check for that is faster than the lossy conversion.
    let raw = without_suffixes(raw);
    let text = std::str::from_utf8(raw).map_or_else(|_| String::from_utf8_lossy(raw), Cow::Borrowed);
    if !["_ZN", "_R", "__ZN", "__R"].iter().any(|start| text.starts_with(start)) {
        return half_demangled(&text).map_or(text, Cow::Owned);
    }
    match rustc_demangle::try_demangle(&text) {
        Ok(demangled) => Cow::Owned(format!("{demangled:#}")),
        Err(_) => text,
    }
}

/// The name of the function of which this symbol is a part that compilers have moved away: `handle` for `handle.cold`,
/// `handle.cold.5` and `handle.part.0`. LLVM appends a number of its own to a function that it makes visible to other
/// units (`.llvm.123`), which is another one in each build.
fn without_suffixes(raw: &[u8]) -> &[u8] {
    let mut name = raw;
    loop {
        let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let front = name[..name.len() - digits].strip_suffix(b".").filter(|_| digits > 0);
        let numbered =
            || front.and_then(|front| [&b".part"[..], b".llvm"].iter().find_map(|end| front.strip_suffix(*end)));
        let part = front.unwrap_or(name).strip_suffix(b".cold").or_else(numbered);
        let Some(function) = part.filter(|function| !function.is_empty()) else { return name };
        name = function;
    }
}

/// What `llvm-nm -C` and other tools that demangle as for C++ make of a legacy mangling: the path with its hash and the
/// escapes in it, `_$LT$k..Frame$GT$::read::hfaf0d9cdb5a498e0`. `None` for any other name.
fn half_demangled(text: &str) -> Option<String> {
    let (_, hash) = text.rsplit_once("::h")?;
    if hash.len() != 16 || !hash.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)) {
        return None;
    }
    let pieces = text.split("::").map(|piece| format!("{}{piece}", piece.len()));
    let demangled =
        rustc_demangle::try_demangle(&format!("_ZN{}E", pieces.collect::<String>())).ok().map(|it| format!("{it:#}"));
    demangled.or_else(|| Some(text[..text.len() - hash.len() - 3].to_owned()))
}

/// How many functions these names of the same code are of. Aliases such as `memcpy`, `__memcpy` and `mem::memcpy` are
/// one function; different ones whose code is equal were merged by the linker or the compiler.
pub fn functions(mut names: Vec<String>) -> usize {
    names.sort_by_key(String::len);
    let mut known: Vec<&str> = Vec::new();
    for name in &names {
        let is_alias = |known: &&str| {
            let front = name.strip_suffix(known.trim_start_matches('_'));
            front.is_some_and(|front| !front.ends_with(char::is_alphanumeric))
        };
        if !known.iter().any(is_alias) {
            known.push(name);
        }
    }
    known.len()
}

/// Whether a symbol does not name a function: assemblers write `.L...` for places within functions, and `$x` and `$d`,
/// with more after it, where code and data begin (ELF for the Arm 64-bit Architecture, 5.7; RISC-V ELF psABI, 8.4.7).
pub fn is_label(raw: &[u8]) -> bool {
    match raw {
        [b'.', b'L', ..] | [b'$', b'x' | b'd'] | [b'$', b'x' | b'd', b'.', ..] => true,
        _ => raw.starts_with(b"$xrv"),
    }
}

/// `name` without the characters that separate frames and lines, and with control characters made [`visible`].
pub fn clean(name: &str) -> Cow<'_, str> {
    let name = visible(name);
    if memchr::memchr(b';', name.as_bytes()).is_some() { Cow::Owned(name.replace(';', ":")) } else { name }
}

/// `text` with its control characters escaped as in Rust: `\n`, `\u{1b}`.
pub fn visible(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| (b' '..0x7f).contains(&byte)) || !text.contains(is_unseen) {
        return Cow::Borrowed(text);
    }
    let one = |letter: char| if is_unseen(letter) { letter.escape_default().to_string() } else { letter.to_string() };
    Cow::Owned(text.chars().map(one).collect())
}

/// The text with the characters escaped that HTML and XML give a meaning.
pub fn markup(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// [`visible`] for a text of several lines: line ends and tabs stay.
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    if !text.contains(|letter| is_unseen(letter) && !"\n\t".contains(letter)) {
        return Cow::Borrowed(text);
    }
    let piece = |piece: &str| match piece {
        "\n" | "\t" => piece.to_owned(),
        _ => piece.strip_suffix(['\n', '\t']).map_or_else(
            || visible(piece).into_owned(),
            |front| format!("{}{}", visible(front), &piece[front.len()..]),
        ),
    };
    Cow::Owned(text.split_inclusive(['\n', '\t']).map(piece).collect())
}

/// Whether a character is a control character, is not allowed in XML 1.0, or changes the text direction of a terminal.
fn is_unseen(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}')
}

/// The name without the types of a generic instance: the part between `::<` and its `>` is removed, so that all
/// instances of a function have one name. Type names at the beginning, such as `<A as B>::f`, stay.
pub fn merge_generics(name: &str) -> String {
    let mut coalesced = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("::<") {
        coalesced.push_str(&rest[..at]);
        let inside = &rest[at + 2..];
        let mut depth = 0usize;
        let mut before = ' ';
        let end = inside.char_indices().find(|(_, letter)| {
            match letter {
                '<' => depth += 1,
                // The `>` in the arrow of a function type closes no bracket.
                '>' if before != '-' => depth -= 1,
                _ => {}
            }
            before = *letter;
            depth == 0
        });
        let Some((end, _)) = end else {
            coalesced.push_str(&rest[at..]);
            return coalesced;
        };
        rest = &inside[end + 1..];
    }
    coalesced.push_str(rest);
    coalesced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_assemblers_are_no_functions() {
        let is = |names: &[&str], expected| names.iter().all(|name| is_label(name.as_bytes()) == expected);
        assert!(is(&[".L0 ", ".Lpcrel_hi1", "$x", "$d", "$d.5", "$xrv64imac"], true));
        assert!(is(&["L0", "x", "$xyz", "$dd", "$t", ".text", "memcpy", ""], false));
    }

    #[test]
    fn aliases_of_a_function_are_one_and_functions_with_the_same_code_are_several() {
        for (names, count) in [
            (&["memcpy"][..], 1),
            (&["__memcpy", "memcpy", "compiler_builtins::mem::memcpy", "__pi_memcpy"], 1),
            (&["mm::map", "mm::unmap"], 2),
            (&["<Lock<u8>>::read", "<Lock<bool>>::read", "<Lock<bool>>::read"], 2),
            (&["yyy", "zzz", "bbb"], 3),
        ] {
            assert_eq!(functions(names.iter().map(|name| (*name).to_owned()).collect()), count, "{names:?}");
        }
    }

    #[test]
    fn all_instances_of_a_generic_function_have_one_name() {
        for (name, coalesced) in [
            ("kernel::f::<u8>", "kernel::f"),
            ("kernel::f::<alloc::vec::Vec<u8>, fn(u8) -> u16>::{closure#0}", "kernel::f::{closure#0}"),
            ("<A<u8> as B>::f::<C>", "<A<u8> as B>::f"),
            ("core::f::<a::g::<u8>>::h::<u16>", "core::f::h"),
            ("kernel::f", "kernel::f"),
            ("broken::<u8", "broken::<u8"),
        ] {
            assert_eq!(merge_generics(name), coalesced);
        }
    }

    #[test]
    fn no_name_tears_a_line_or_speaks_to_the_terminal() {
        for (raw, seen) in [
            ("mm::map", "mm::map"),
            ("größe", "größe"),
            ("a\nb\rc", "a\\nb\\rc"),
            ("\u{1b}[31mred;", "\\u{1b}[31mred:"),
            ("a\0b\u{7f}", "a\\u{0}b\\u{7f}"),
            ("\u{9b}2J\u{202e}", "\\u{9b}2J\\u{202e}"),
        ] {
            assert_eq!(clean(raw), seen);
        }
        assert_eq!(visible_lines("a;\tb\n\u{1b}c\n\nd\u{7}"), "a;\tb\n\\u{1b}c\n\nd\\u{7}");
    }

    #[test]
    fn only_manglings_are_touched() {
        for (raw, name) in [
            ("_ZN6kernel6memory3map17h0123456789abcdefE", "kernel::memory::map"),
            ("_RNvNtCs1234_6kernel6memory3map", "kernel::memory::map"),
            ("<kernel::X as Y>::f", "<kernel::X as Y>::f"),
            ("<[u8; 4]>::f", "<[u8: 4]>::f"),
            ("memcpy", "memcpy"),
            ("RNvNtCs1234_6kernel6memory3map", "RNvNtCs1234_6kernel6memory3map"),
            ("RNvNtCs1234_6kernel", "RNvNtCs1234_6kernel"),
            ("kernel::f::h0123456789abcdef", "kernel::f"),
            ("_$LT$k..Frame$u20$as$u20$k..Word$GT$::read::hfaf0d9cdb5a498e0", "<k::Frame as k::Word>::read"),
            ("kernel::f::h0123", "kernel::f::h0123"),
            ("handle.cold", "handle"),
            ("_ZN6kernel6memory3map17h0123456789abcdefE.cold.1", "kernel::memory::map"),
            ("handle.cold.x", "handle.cold.x"),
            ("handle.part.0", "handle"),
            ("handle.isra.0.cold", "handle.isra.0"),
            ("handle.part.3.cold.1", "handle"),
            ("handle.llvm.7938792829313461892", "handle"),
            ("_ZN6kernel6memory3map17h0123456789abcdefE.llvm.7938792829313461892", "kernel::memory::map"),
            ("handle.part", "handle.part"),
            ("part.0", "part.0"),
            (".part.0", ".part.0"),
            (".cold", ".cold"),
        ] {
            assert_eq!(clean(&frame_name(raw.as_bytes())), name);
        }
        assert_eq!(frame_name(b"a\xffb"), "a\u{fffd}b");
    }
}
