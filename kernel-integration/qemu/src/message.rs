//! Messages of the plugin. Stage: capture.
//!
//! In: bytes from the plugin's socket. Out: [`Message`]s. The plugin (`plugin/lib.rs`) has the same kinds. A message
//! that is cut off by the end of QEMU is an error.

use anyhow::{Result, bail, ensure};
use std::io::{ErrorKind, Read};

/// The most words of a message that is accepted.
const MAX_WORDS: usize = 1024;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A sample.
    Sample(Sample),
    /// A tick while the vCPU was halted.
    Idle {
        /// The vCPU.
        cpu: u32,
    },
    /// A tick while an earlier one had not been taken.
    Coalesced {
        /// The vCPU.
        cpu: u32,
    },
    /// A tick that was not taken when QEMU ended.
    Pending {
        /// The vCPU.
        cpu: u32,
    },
}

/// A sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The vCPU.
    pub cpu: u32,
    /// Nanoseconds since the start, or executed instructions.
    pub time: u64,
    /// The sampled instruction.
    pub rip: u64,
    /// RFLAGS.
    pub rflags: u64,
    /// The code segment; its two lowest bits are the privilege level.
    pub cs: u64,
    /// A caller that only the host can judge; 0 if there is none.
    pub candidate: u64,
    /// Why the walk ended: 0 at the outermost frame, otherwise the number of a reason of `kprof-format`.
    pub end: u64,
    /// Return addresses, innermost first.
    pub callers: Vec<u64>,
}

impl Sample {
    /// Whether it is of user code.
    pub fn is_user(&self) -> bool {
        self.cs & 3 == 3
    }
}

/// Reads one message; `None` at the end.
///
/// # Errors
/// If the stream cannot be read, ends within a message, or is not the plugin's.
pub fn read(from: &mut impl Read) -> Result<Option<Message>> {
    let Some(head) = word(from)? else { return Ok(None) };
    let (kind, cpu, words) = (head & 0xff, (head >> 8) as u32 & 0xff_ffff, (head >> 32) as usize);
    ensure!(words <= MAX_WORDS, "the plugin sent a message of {words} words; at most {MAX_WORDS} are expected");
    let mut all = Vec::with_capacity(words);
    for _ in 0..words {
        let Some(word) = word(from)? else { bail!("QEMU ended within a message of the plugin") };
        all.push(word);
    }
    Ok(Some(match (kind, &all[..]) {
        (1, [time, rip, rflags, cs, rest @ ..]) => {
            let (candidate, end, callers) = match rest {
                [candidate, end, callers @ ..] => (*candidate, *end, callers.to_vec()),
                _ => (0, 0, Vec::new()),
            };
            let (time, rip, rflags, cs) = (*time, *rip, *rflags, *cs);
            Message::Sample(Sample { cpu, time, rip, rflags, cs, candidate, end, callers })
        }
        (2, [_]) => Message::Idle { cpu },
        (3, []) => Message::Coalesced { cpu },
        (4, []) => Message::Pending { cpu },
        _ => bail!("the plugin sent a message of kind {kind} with {words} words, which this version does not know"),
    }))
}

/// Reads one word; `None` at the end.
fn word(from: &mut impl Read) -> Result<Option<u64>> {
    let mut bytes = [0; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        match from.read(&mut bytes[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => bail!("QEMU ended within a message of the plugin"),
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // QEMU was killed.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Some(u64::from_le_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn messages_are_read_one_after_the_other_and_a_damaged_one_is_an_error() {
        let stream = bytes(&[1 | 3 << 8 | 7 << 32, 5, 10, 0x202, 8, 20, 6, 30, 2 | 1 << 8 | 1 << 32, 9, 3 << 8 | 3]);
        let from = &mut &stream[..];
        let sample =
            Sample { cpu: 3, time: 5, rip: 10, rflags: 0x202, cs: 8, candidate: 20, end: 6, callers: vec![30] };
        assert_eq!(read(from).unwrap(), Some(Message::Sample(sample)));
        assert_eq!(read(from).unwrap(), Some(Message::Idle { cpu: 1 }));
        assert_eq!(read(from).unwrap(), Some(Message::Coalesced { cpu: 3 }));
        assert_eq!(read(from).unwrap(), None);
        for damaged in [&stream[..60], &stream[..4], &bytes(&[9])[..], &bytes(&[1 | 2000 << 32])[..]] {
            assert!(read(&mut &damaged[..]).is_err(), "{damaged:?}");
        }
    }
}
