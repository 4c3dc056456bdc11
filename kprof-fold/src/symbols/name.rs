//! Names fit for the output: demangled, and without what would break a folded line. Stage: symbolize.
//!
//! In: a raw name of a symbol. Out: the name of a frame. Only legacy and v0 manglings are touched (their hash goes);
//! `;` becomes `:` because it separates frames; bytes that are not UTF-8 become U+FFFD, and line ends become spaces.

use std::borrow::Cow;

/// The frame's name for a raw symbol name, before [`clean`].
pub fn frame_name(raw: &[u8]) -> Cow<'_, str> {
    // Names are nearly always UTF-8, which is seen faster than what to put for the rest.
    let text = std::str::from_utf8(raw).map_or_else(|_| String::from_utf8_lossy(raw), Cow::Borrowed);
    if !["_ZN", "_R", "__ZN", "__R"].iter().any(|start| text.starts_with(start)) {
        return text;
    }
    match rustc_demangle::try_demangle(&text) {
        Ok(demangled) => Cow::Owned(format!("{demangled:#}")),
        Err(_) => text,
    }
}

/// `name` without the bytes that separate frames and lines.
pub fn clean(name: &str) -> Cow<'_, str> {
    if memchr::memchr3(b';', b'\n', b'\r', name.as_bytes()).is_some() {
        Cow::Owned(name.replace(';', ":").replace(['\n', '\r'], " "))
    } else {
        Cow::Borrowed(name)
    }
}

/// The name without the types of a generic instance: what stands between `::<` and its `>` goes, so that all instances of
/// a function have one name. Names of types in front, such as `<A as B>::f`, stay.
pub fn merge_generics(name: &str) -> String {
    let mut merged = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("::<") {
        merged.push_str(&rest[..at]);
        let inside = &rest[at + 2..];
        let mut depth = 0usize;
        let mut before = ' ';
        let end = inside.char_indices().find(|(_, letter)| {
            match letter {
                '<' => depth += 1,
                // The arrow of a function type closes nothing.
                '>' if before != '-' => depth -= 1,
                _ => {}
            }
            before = *letter;
            depth == 0
        });
        let Some((end, _)) = end else {
            merged.push_str(&rest[at..]);
            return merged;
        };
        rest = &inside[end + 1..];
    }
    merged.push_str(rest);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_instances_of_a_generic_function_have_one_name() {
        for (name, merged) in [
            ("kernel::f::<u8>", "kernel::f"),
            ("kernel::f::<alloc::vec::Vec<u8>, fn(u8) -> u16>::{closure#0}", "kernel::f::{closure#0}"),
            ("<A<u8> as B>::f::<C>", "<A<u8> as B>::f"),
            ("core::f::<a::g::<u8>>::h::<u16>", "core::f::h"),
            ("kernel::f", "kernel::f"),
            ("broken::<u8", "broken::<u8"),
        ] {
            assert_eq!(merge_generics(name), merged);
        }
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
            ("kernel::f::h0123456789abcdef", "kernel::f::h0123456789abcdef"),
        ] {
            assert_eq!(clean(&frame_name(raw.as_bytes())), name);
        }
        assert_eq!(frame_name(b"a\xffb"), "a\u{fffd}b");
    }
}
