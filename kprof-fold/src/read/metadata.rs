//! Parses `# key value` lines. Stage: read.
//!
//! In: the bytes of a line. Out: one [`Line`], or what is wrong with it. Unknown keys are kept as they are, because a
//! newer kernel may write keys that this version does not know.

use super::escape::unescape;
use super::hex::hex64;
use crate::profile::{Counters, Image, Mark};

/// A metadata line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// `# kprof-profile N`: a new header begins.
    Profile(u32),
    /// `# batch ...`
    Batch {
        /// The CPU; `None` for the meta stream.
        cpu: Option<u32>,
        /// The first position and one past the last, in words.
        positions: (u64, u64),
        /// All other fields of the line whose value is a decimal number.
        counters: Counters,
    },
    /// `# end ...`
    End {
        /// The CPU; `None` for the meta stream.
        cpu: Option<u32>,
        /// One past the last position, in words.
        to: u64,
        /// How many sample lines the batch has, if the line says so.
        samples: Option<u64>,
    },
    /// `# account ...`
    Account {
        /// The CPU.
        cpu: u32,
        /// Its counters.
        counters: Counters,
    },
    /// `# anchor NAME=HEX`
    Anchor(String, u64),
    /// `# task id=HEX name=ESCAPED`
    Task(u64, Vec<u8>),
    /// `# mark tsc=HEX name=ESCAPED`
    Mark(Mark),
    /// `# setting tsc=HEX value=ESCAPED`
    Setting(Mark),
    /// `# events ... NAME=COUNT ... task=ESCAPED`: events of a task on one CPU.
    Events(Vec<u8>, Counters),
    /// `# image ...`
    Image(Image),
    /// `# corrupt ... words=N`: this many words of the ring were not a record.
    Corrupt(u64),
    /// Any other key and its value.
    Header(String, String),
}

/// Parses a line; `line` begins with `#`.
///
/// # Errors
/// The field that is missing or cannot be parsed.
pub fn parse(line: &[u8]) -> Result<Line, String> {
    let text = String::from_utf8_lossy(line.get(1..).unwrap_or_default());
    let text = text.trim();
    let (key, value) = text.split_once(' ').unwrap_or((text, ""));
    let value = value.trim();
    let fields = Fields(value);
    Ok(match key {
        "kprof-profile" => Line::Profile(value.parse().map_err(|_| format!("version `{value}` is not a number"))?),
        "batch" => Line::Batch {
            cpu: fields.cpu_or_meta()?,
            positions: (fields.decimal("from")?, fields.decimal("to")?),
            counters: fields.counters(&["cpu", "from", "to"])?,
        },
        "end" => Line::End {
            cpu: fields.cpu_or_meta()?,
            to: fields.decimal("to")?,
            samples: fields.get("samples").map(|_| fields.decimal("samples")).transpose()?,
        },
        "account" => Line::Account {
            cpu: fields.cpu_or_meta()?.ok_or("cpu=meta has no account")?,
            counters: fields.counters(&["cpu"])?,
        },
        "corrupt" => Line::Corrupt(fields.decimal("words")?),
        "anchor" => {
            let (name, address) = value.rsplit_once('=').ok_or("NAME=ADDRESS expected")?;
            Line::Anchor(name.to_owned(), hex(address)?)
        }
        "task" => Line::Task(fields.hex("id")?, fields.name("name")?),
        "mark" => Line::Mark(Mark { tsc: fields.hex("tsc")?, name: fields.name("name")? }),
        "setting" => Line::Setting(Mark { tsc: fields.hex("tsc")?, name: fields.name("value")? }),
        "events" => Line::Events(fields.name("task")?, fields.counters(&["tsc", "cpu", "task"])?),
        "image" => Line::Image(Image {
            load: fields.hex("load")?,
            text: range(fields.get("text").ok_or("text= is missing")?)?,
            build_id: fields.get("build-id").unwrap_or("-").to_owned(),
            name: fields.name("name")?,
        }),
        _ => Line::Header(key.to_owned(), value.to_owned()),
    })
}

/// The readable fields of a damaged `# batch` or `# end` line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Torn {
    /// The CPU, if the line names one.
    pub cpu: Option<u32>,
    /// The first position and one past the last, in words.
    pub positions: (Option<u64>, Option<u64>),
    /// How many samples the batch has.
    pub samples: Option<u64>,
    /// The other decimal numbers.
    pub counters: Counters,
}

/// Parses the readable fields of a damaged line.
pub fn torn(line: &[u8]) -> Torn {
    let text = String::from_utf8_lossy(line);
    let fields = Fields(&text);
    let known = ["cpu", "from", "to", "samples"];
    let counters = text.split_ascii_whitespace().filter_map(|field| field.split_once('='));
    let counters = counters.filter(|(name, _)| !known.contains(name));
    Torn {
        cpu: fields.cpu_or_meta().ok().flatten(),
        positions: (fields.decimal("from").ok(), fields.decimal("to").ok()),
        samples: fields.decimal("samples").ok(),
        counters: counters.filter_map(|(name, text)| Some((name.to_owned(), decimal(name, text).ok()?))).collect(),
    }
}

/// A range `HEX-HEX`.
///
/// # Errors
/// What is wrong with it.
pub fn range(text: &str) -> Result<(u64, u64), String> {
    let (from, to) = text.split_once('-').ok_or_else(|| format!("`{text}` is not a range FROM-TO"))?;
    Ok((hex(from)?, hex(to)?))
}

fn hex(text: &str) -> Result<u64, String> {
    hex64(text.as_bytes()).map_err(|bad| format!("`{text}` {bad}"))
}

/// `name=value` fields, separated by spaces.
struct Fields<'a>(&'a str);

impl<'a> Fields<'a> {
    fn get(&self, name: &str) -> Option<&'a str> {
        self.0
            .split_ascii_whitespace()
            .filter_map(|field| field.split_once('='))
            .find(|(key, _)| *key == name)
            .map(|f| f.1)
    }

    fn decimal(&self, name: &str) -> Result<u64, String> {
        let text = self.get(name).ok_or_else(|| format!("{name}= is missing"))?;
        decimal(name, text)
    }

    fn hex(&self, name: &str) -> Result<u64, String> {
        hex(self.get(name).ok_or_else(|| format!("{name}= is missing"))?)
    }

    fn name(&self, name: &str) -> Result<Vec<u8>, String> {
        let text = self.get(name).ok_or_else(|| format!("{name}= is missing"))?;
        Ok(unescape(text.as_bytes()).into_owned())
    }

    fn cpu_or_meta(&self) -> Result<Option<u32>, String> {
        match self.get("cpu") {
            Some("meta") => Ok(None),
            Some(text) => Ok(Some(text.parse().map_err(|_| format!("cpu=`{text}` is not a CPU number"))?)),
            None => Err("cpu= is missing".to_owned()),
        }
    }

    fn counters(&self, except: &[&str]) -> Result<Counters, String> {
        let fields = self.0.split_ascii_whitespace().filter_map(|field| field.split_once('='));
        fields
            .filter(|(name, _)| !except.contains(name))
            .map(|(name, text)| Ok((name.to_owned(), decimal(name, text)?)))
            .collect()
    }
}

fn decimal(name: &str, text: &str) -> Result<u64, String> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = plain.then(|| text.parse().ok()).flatten();
    number.ok_or_else(|| format!("{name}=`{text}` is not a decimal number of 64 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_of_the_form_is_taken_apart() {
        assert_eq!(parse(b"# kprof-profile 1"), Ok(Line::Profile(1)));
        let counters = Counters::from([("first-tick".to_owned(), 7), ("lost-full".to_owned(), 3)]);
        assert_eq!(
            parse(b"# batch cpu=1 from=10 to=20 first-tick=7 lost-full=3"),
            Ok(Line::Batch { cpu: Some(1), positions: (10, 20), counters })
        );
        assert_eq!(parse(b"# end cpu=meta to=20"), Ok(Line::End { cpu: None, to: 20, samples: None }));
        assert_eq!(parse(b"# anchor a=b=ff"), Ok(Line::Anchor("a=b".to_owned(), 255)));
        assert_eq!(parse(b"# task id=1f name=a%20b"), Ok(Line::Task(31, b"a b".to_vec())));
        let counts = Counters::from([("interrupts".to_owned(), 2), ("page-faults".to_owned(), 0)]);
        assert_eq!(
            parse(b"# events tsc=1f cpu=2 page-faults=0 interrupts=2 task=a%20b"),
            Ok(Line::Events(b"a b".to_vec(), counts))
        );
        assert_eq!(parse(b"# tsc-hz 2200000000"), Ok(Line::Header("tsc-hz".to_owned(), "2200000000".to_owned())));
        assert_eq!(parse(b"#"), Ok(Line::Header(String::new(), String::new())));
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        for (line, part) in [
            (&b"# batch cpu=1 from=10"[..], "to= is missing"),
            (b"# batch cpu=x from=1 to=2", "not a CPU number"),
            (b"# batch cpu=1 from=-1 to=2", "not a decimal number"),
            (b"# end cpu=1 to=99999999999999999999", "not a decimal number of 64 bits"),
            (b"# anchor kmain", "NAME=ADDRESS expected"),
            (b"# anchor kmain=0x5", "not a plain hexadecimal"),
            (b"# image load=0 text=5 name=x", "not a range"),
            (b"# kprof-profile one", "not a number"),
            (b"# events tsc=1 cpu=1 interrupts=-2 task=a", "not a decimal number"),
            (b"# events tsc=1 cpu=1 interrupts=2", "task= is missing"),
        ] {
            let error = parse(line).expect_err("must be refused");
            assert!(error.contains(part), "{error}");
        }
    }
}
