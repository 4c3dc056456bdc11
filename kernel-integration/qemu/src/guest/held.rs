//! Samples that wait until it is known that the kernel is where it was. Stage: capture.
//!
//! In: the messages of each tick; whether the kernel's code is still at its place. Out: messages. A machine may reboot
//! between two samples, and the stub does not say so: the kernel may run elsewhere then, and names would be wrong. So
//! samples are held until its code was compared again, which most samples do. If it is gone, it is not known which of
//! those held are of the new boot: they are written as unknown code.

use crate::message::{Message, Sample};

/// How long the code may differ before the kernel is looked for; and when again, if this was not possible.
const PERIOD_NS: u64 = 1_000_000_000;
const AGAIN_NS: u64 = PERIOD_NS / 10;

/// The samples, and since when.
#[derive(Debug, Default)]
pub struct Held {
    messages: Vec<Message>,
    /// How many of them are samples: asked for again and again.
    samples: usize,
    /// When the code is to be compared.
    due: u64,
}

impl Held {
    /// Whether the code is to be compared at this time, in nanoseconds.
    pub fn is_due(&self, time: u64) -> bool {
        time >= self.due
    }

    /// Returns the messages that were held. The code was compared at this time and has not moved.
    pub fn release(&mut self, time: u64) -> Vec<Message> {
        self.due = time + PERIOD_NS;
        self.samples = 0;
        std::mem::take(&mut self.messages)
    }

    /// The code is gone: what was held until then, without addresses.
    pub fn forget(&mut self, time: u64) -> Vec<Message> {
        self.release(time).into_iter().map(without_addresses).collect()
    }

    /// The code could not be compared at this time.
    pub fn put_off(&mut self, time: u64) {
        self.due = time + AGAIN_NS;
    }

    /// Holds the messages of a tick.
    pub fn hold(&mut self, messages: Vec<Message>) {
        self.samples += messages.iter().filter(|message| matches!(message, Message::Sample(_))).count();
        self.messages.extend(messages);
    }

    /// The number of samples that are held.
    pub fn samples(&self) -> usize {
        self.samples
    }
}

/// A sample of unknown code, in the mode and at the time of this one.
fn without_addresses(message: Message) -> Message {
    match message {
        Message::Sample(Sample { cpu, time, rflags, cs, .. }) => {
            Message::Sample(Sample { cpu, time, rflags, cs, ..Sample::default() })
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_lose_their_addresses_if_the_kernel_is_gone() {
        let sample = |rip, callers| Sample { cpu: 1, time: 5, rip, rflags: 0x202, cs: 8, callers, ..Sample::default() };
        let known = Message::Sample(sample(0xffff_ffff_8000_1000, vec![0xffff_ffff_8000_2000]));
        let mut held = Held::default();
        held.hold(vec![known.clone(), Message::Idle { cpu: 0 }]);
        assert_eq!((held.samples(), held.is_due(0)), (1, true));
        held.put_off(0);
        assert!(!held.is_due(AGAIN_NS - 1) && held.is_due(AGAIN_NS));
        assert_eq!(held.release(PERIOD_NS), [known.clone(), Message::Idle { cpu: 0 }]);
        assert!(!held.is_due(2 * PERIOD_NS - 1) && held.is_due(2 * PERIOD_NS));
        held.hold(vec![known]);
        assert_eq!(held.forget(3 * PERIOD_NS), [Message::Sample(sample(0, Vec::new()))]);
        assert_eq!(held.samples(), 0);
    }
}
