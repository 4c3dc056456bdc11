//! Names inside lines: `%xx` stands for a byte that would split the line. Stage: read.
//!
//! In: an escaped name. Out: its bytes; an empty name is written `%00`. A `%` without two hex digits after it stays as
//! it is, because Redox's old text forms do not escape.

use kprof_format::text::unescaped;
use std::borrow::Cow;

/// The original of an escaped name.
pub fn unescape(text: &[u8]) -> Cow<'_, [u8]> {
    if text.contains(&b'%') { Cow::Owned(unescaped(text).collect()) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_bytes_come_back_and_everything_else_stays() {
        for (escaped, plain) in [
            (&b"kmain"[..], &b"kmain"[..]),
            (b"%00", b""),
            (b"a%20b", b"a b"),
            (b"%23x%25", b"#x%"),
            (b"100%", b"100%"),
            (b"%zz%4", b"%zz%4"),
            (b"%c3%A4", b"\xc3\xa4"),
        ] {
            assert_eq!(unescape(escaped).as_ref(), plain);
        }
    }
}
