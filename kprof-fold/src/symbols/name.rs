//! Names fit for the output: demangled, and without what would break a folded line. Stage: symbolize.
//!
//! In: a raw name of a symbol. Out: the name of a frame. Only legacy and v0 manglings are touched (their hash goes);
//! `;` becomes `:` because it separates frames; bytes that are not UTF-8 become U+FFFD, and line ends become spaces.

use std::borrow::Cow;

/// The frame's name for a raw symbol name, before [`clean`].
pub fn frame_name(raw: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(raw);
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

#[cfg(test)]
mod tests {
    use super::*;

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
