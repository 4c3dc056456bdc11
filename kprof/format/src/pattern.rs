//! Names of functions and tasks as users give them, as every program of kprof understands them.
//!
//! In: a pattern and a name. Out: how closely they fit. A text with `*` (any bytes) or `?` (one byte) must fit the
//! whole name. Any other text is the whole name, the end of its path, or a part of it. The newer mangling of Rust puts
//! the type of a method in brackets, `<fs::OpenFile>::write`; such a name also fits as `fs::OpenFile::write`. Runs in:
//! any. Never allocates.

/// How closely a name fits; the closest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// The whole name.
    Whole,
    /// The last components of its path.
    Path,
    /// Some part of it.
    Part,
}

/// How closely the name of a function fits, if it does.
pub fn fit(pattern: &str, name: &str) -> Option<Fit> {
    let closest = |name: Name<'_>| {
        if pattern.contains(['*', '?']) {
            return stars_fit(pattern.as_bytes(), name).then_some(Fit::Whole);
        }
        let path = name.len().checked_sub(pattern.len()).filter(|path| name.has(*path, pattern.as_bytes()));
        match path {
            Some(0) => Some(Fit::Whole),
            _ if pattern.is_empty() => None,
            Some(path) if path >= 2 && name.has(path - 2, b"::") => Some(Fit::Path),
            _ => name.contains(pattern.as_bytes()).then_some(Fit::Part),
        }
    };
    let without = without_brackets(name).map(|(inside, rest)| Name(inside.as_bytes(), rest.as_bytes()));
    [Some(Name(name.as_bytes(), b"")), without].into_iter().flatten().filter_map(closest).min()
}

/// Whether a pattern in which `*` stands for any bytes and `?` for one byte fits the whole name.
pub fn stars(pattern: &[u8], name: &[u8]) -> bool {
    stars_fit(pattern, Name(name, b""))
}

/// The type and what follows it, of a method whose type is in brackets: `fs::OpenFile` and `::write`. `None` for a
/// method of a trait, `<A as B>::write`, and for types that are no path.
pub fn without_brackets(name: &str) -> Option<(&str, &str)> {
    let inside = name.strip_prefix('<').filter(|inside| inside.starts_with(|c: char| c.is_alphabetic() || c == '_'))?;
    let mut depth = 1;
    let mut before = b' ';
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            // The `>` in the arrow of a function type closes no bracket.
            b'>' if before != b'-' => depth -= 1,
            b' ' if depth == 1 => return None,
            _ => {}
        }
        if depth == 0 {
            return inside[at + 1..].starts_with("::").then(|| (&inside[..at], &inside[at + 1..]));
        }
        before = byte;
    }
    None
}

/// A name in two pieces.
#[derive(Clone, Copy)]
struct Name<'a>(&'a [u8], &'a [u8]);

impl Name<'_> {
    fn len(self) -> usize {
        self.0.len() + self.1.len()
    }

    fn at(self, at: usize) -> Option<u8> {
        self.0.get(at).or_else(|| self.1.get(at.checked_sub(self.0.len())?)).copied()
    }

    /// Whether this is at a place.
    fn has(self, place: usize, text: &[u8]) -> bool {
        text.iter().enumerate().all(|(at, byte)| self.at(place + at) == Some(*byte))
    }

    fn contains(self, text: &[u8]) -> bool {
        (0..=self.len().saturating_sub(text.len())).any(|place| self.has(place, text))
    }
}

fn stars_fit(pattern: &[u8], name: Name<'_>) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where to continue if the last star must match one more byte: the pattern after it, and the name.
    let mut retry = None;
    while let Some(byte) = name.at(n) {
        match pattern.get(p) {
            Some(b'*') => {
                p += 1;
                retry = Some((p, n));
            }
            Some(wanted) if *wanted == b'?' || *wanted == byte => {
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

    #[test]
    fn a_name_fits_as_a_whole_by_the_end_of_its_path_or_in_part() {
        let name = "kernel::fs::read";
        let fits = [name, "kernel::*", "fs::read", "read", "ad", "fs", "", "write"].map(|pattern| fit(pattern, name));
        let (whole, path, part) = (Some(Fit::Whole), Some(Fit::Path), Some(Fit::Part));
        assert_eq!(fits, [whole, whole, path, path, part, part, None, None]);
        assert_eq!([fit("a", "a"), fit("aa", "a"), fit("a", "")], [whole, None, None]);
    }

    #[test]
    fn a_method_fits_with_its_type_in_brackets_and_without() {
        let (whole, path, part) = (Some(Fit::Whole), Some(Fit::Path), Some(Fit::Part));
        let name = "<kernel::fs::OpenFile>::write";
        for (pattern, fits) in [
            (name, whole),
            ("kernel::fs::OpenFile::write", whole),
            ("OpenFile::write", path),
            ("OpenFile>::write", path),
            ("File>::wri", part),
            ("write", path),
            ("File::wri", part),
            ("*fs::OpenFile::w*", whole),
            ("*OpenFile>::w*", whole),
            ("OpenFile::read", None),
        ] {
            assert_eq!(fit(pattern, name), fits, "{pattern}");
        }
        assert_eq!(fit("Talc<Manual>::allocate", "<talc::Talc<Manual>>::allocate"), path);
        for kept in ["<A as B>::write", "<[u8]>::len", "<&A>::len", "f::<u8>", "<fn() -> u8>", "<A", "<A>write"] {
            assert_eq!(without_brackets(kept), None, "{kept}");
        }
    }
}
