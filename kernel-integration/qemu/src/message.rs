//! Messages of the plugin. Stage: capture.
//!
//! In: bytes from the plugin's socket. Out: [`Message`]s. The plugin (`plugin/lib.rs`) has the same kinds. A message
//! that is cut off by the end of QEMU is an error.

use crate::calls::{Call, Held};
use crate::finder::{Outcome, State};
use crate::found::{Hit, Probed};
pub use crate::totals::Totals;
use crate::window::{Halted, Part, Visit};
use anyhow::{Context as _, Result, bail, ensure};
use std::io::{ErrorKind, Read};

/// The most words of a message that is accepted.
const MAX_WORDS: usize = 1024;

/// What can be known of the kernel's place, by number.
const STATES: [State; 6] =
    [State::Nothing, State::Nowhere, State::Differs, State::Ambiguous, State::OtherBuild, State::Placed];

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
    /// Instructions that were executed equally often.
    Run(Run),
    /// A calling context. The first one is the root.
    Context(Context),
    /// Totals of a counted run.
    Totals(Totals),
    /// A part of a context's count.
    Part(Part),
    /// A visit of a handler.
    Visit(Visit),
    /// How long a vCPU was halted.
    Halted(Halted),
    /// A vCPU after this stop of the machine.
    Stop(u64, Visit),
    /// A system call.
    Call(Call),
    /// Instructions of a function, by what they were executed for.
    Held(Held),
    /// What a probe has found.
    Probed(Probed),
    /// Calls of a probe with a key: the probe, the key, calls.
    Key(u64, u64, u64),
    /// Times of a probe's calls: the probe, their range, calls.
    Times(u64, u64, u64),
    /// A call that was asked for.
    Hit(Hit),
    /// Where the kernel runs.
    Place(Outcome),
    /// The last message.
    End,
    /// The machine was reset.
    Reset,
}

/// Instructions in a row that were executed equally often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// How often.
    pub count: u64,
    /// The first one's address.
    pub start: u64,
    /// Whether they are of user code.
    pub is_user: bool,
    /// Whether they are in no function, as far as it was known when they were translated.
    pub is_unknown: bool,
    /// The length of each in bytes.
    pub lengths: Vec<u8>,
}

/// A calling context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The caller's context.
    pub parent: u32,
    /// The function's number.
    pub function: u32,
    /// Instructions executed in it, without those of called functions.
    pub instructions: u64,
    /// How often it was entered.
    pub calls: u64,
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
        (5, [count, start, whose, instructions, lengths @ ..]) => {
            let nibble = |number: usize| lengths.get(number / 16).map(|word| (word >> (number % 16 * 4)) as u8 & 15);
            let lengths: Option<Vec<u8>> = (0..usize::try_from(*instructions)?).map(nibble).collect();
            let Some(lengths) = lengths else { bail!("the plugin sent fewer lengths than instructions") };
            let (count, start, is_user, is_unknown) = (*count, *start, *whose == 1, *whose == 2);
            Message::Run(Run { count, start, is_user, is_unknown, lengths })
        }
        (6, &[parent, function, instructions, calls]) => {
            let (parent, function) = (u32::try_from(parent)?, u32::try_from(function)?);
            Message::Context(Context { parent, function, instructions, calls })
        }
        (7, words) => Message::Totals(Totals::read(words).context("the plugin sent other totals")?),
        (8, &[context, instructions, task]) => Message::Part(Part { cpu, context, instructions, task }),
        (9, &[rip, cs, context, inside]) => Message::Visit(Visit { cpu, rip, cs, context, is_inside: inside != 0 }),
        (10, &[number, own, interrupts, returned]) => {
            Message::Call(Call { number, own, interrupts, has_returned: returned != 0 })
        }
        (11, &[kind, number, function, instructions]) => {
            Message::Held(Held { kind: kind.into(), number, function, instructions })
        }
        (12, &[number, calls, returned, sum, min, max]) => {
            Message::Probed(Probed { number, calls, returned, sum, min, max })
        }
        (13, &[probe, key, calls]) => Message::Key(probe, key, calls),
        (16, &[number, rip, cs, context]) => Message::Stop(number, Visit { cpu, rip, cs, context, is_inside: true }),
        (15, &[probe, range, calls]) => Message::Times(probe, range, calls),
        (14, &[probe, context, time, rdi, rsi, rdx, rcx, r8, r9]) => {
            Message::Hit(Hit { probe, context, time, arguments: [rdi, rsi, rdx, rcx, r8, r9] })
        }
        (17, [state, same, compared, slide, id @ ..]) => {
            let state = *STATES.get(usize::try_from(*state)?).context("the plugin sent a state that is none")?;
            let (same, compared, slide) = (*same, *compared, *slide);
            Message::Place(Outcome { state, same, compared, slide, id: id.iter().map(|byte| *byte as u8).collect() })
        }
        (19, []) => Message::End,
        (20, []) => Message::Reset,
        (18, &[ns, others, of_ns]) => Message::Halted(Halted { cpu, ns, others, of_ns }),
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
mod tests;
