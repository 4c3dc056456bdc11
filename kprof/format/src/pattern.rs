//! Names with `*` and `?`, as every program of kprof understands them.
//!
//! In: a pattern and a name. Out: whether the pattern fits the whole name. Runs in: any. Never allocates.

/// Whether a pattern in which `*` stands for any bytes and `?` for one byte fits the whole name.
pub fn stars(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where to continue if the last star must match one more byte: the pattern after it, and the name.
    let mut retry = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                retry = Some((p, n));
            }
            Some(byte) if *byte == b'?' || *byte == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((after_star, taken)) = retry else { return false };
                retry = Some((after_star, taken + 1));
                p = after_star;
                n = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_bytes_and_a_question_mark_is_one() {
        for (pattern, name, fits) in [
            ("mm::*", "mm::map", true),
            ("mm::*", "xmm::map", false),
            ("*a*b*c", "xaybzc", true),
            ("*a*b*c", "xaybz", false),
            ("m?::map", "mm::map", true),
            ("m?::map", "m::map", false),
            ("*", "", true),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(stars(pattern.as_bytes(), name.as_bytes()), fits, "{pattern} {name}");
        }
    }
}
