//! Writes names, images, marks and settings as records of the meta stream.
//!
//! In: the kernel's calls, and every change of a choice. Out: records in the meta stream, or a count of lost records.
//! Runs in: ordinary code, never in an NMI.

use crate::format::command::Verb;
use crate::format::fact::Fact;
use crate::format::record::Kind;
use crate::format::settings::{Choices, Keys};
use crate::format::text::eight_digits;
use crate::kernel::Image;
use crate::shared::Shared;
use crate::stream::meta::truncated;
use crate::stream::meta_record::MAX_TEXT;
use core::fmt::Write;
use core::sync::atomic::Ordering;

impl Shared {
    /// Records the name of a task, when the task is created or when its name changes.
    pub(crate) fn task_name(&self, id: u64, name: &str) {
        self.meta.put_or_lose(Kind::TaskName, [id, 0, 0], name);
    }

    /// Records a code image: the kernel once, a module when it is loaded.
    pub(crate) fn image(&self, image: &Image<'_>) {
        let mut text = heapless::String::<MAX_TEXT>::new();
        let name = truncated(image.name, MAX_TEXT / 2);
        // Cannot overflow: the name has half of the space, and the id has at most 64 bytes, each written as 2
        // characters.
        let _ = write!(text, "{name} {}", Hex(&image.build_id[..image.build_id.len().min(64)]));
        self.meta.put_or_lose(Kind::Image, [image.load, image.text.0, image.text.1], &text);
    }

    /// Records a mark: a name, with the present time.
    pub(crate) fn mark(&self, name: &str) {
        self.meta.put_or_lose(Kind::Mark, [0; 3], name);
    }

    /// Records that a setting changed.
    pub fn note_setting(&self, command: core::fmt::Arguments<'_>) {
        let mut text = Truncating(heapless::String::<MAX_TEXT>::new());
        let _ = text.write_fmt(command);
        self.meta.put_or_lose(Kind::Setting, [0; 3], &text.0);
    }

    /// Records the values of these choices.
    pub(crate) fn note_choices(&self, keys: Keys, choices: &Choices) {
        // The list of CPUs is not in the table: `note_cpus` records it.
        choices.each(keys).for_each(|setting| self.note_setting(format_args!("{setting}")));
    }

    /// Records which CPUs get ticks.
    pub(crate) fn note_cpus(&self) {
        self.note_setting(format_args!("{} {}", Verb::Cpus, EnabledCpus(self)));
    }

    /// Records all settings, for a reader that may have missed their changes. Those of the extension first: if there
    /// are more than the stream has room for, the newest records are kept.
    pub(crate) fn note_all(&self) {
        self.extension().tell_again();
        self.note_setting(format_args!("{} {}", Fact::Trigger, self.trigger().name()));
        self.note_choices(Keys::TABLE, &self.live.choices());
        self.note_cpus();
    }
}

/// The list of CPUs, in the syntax of the ctl command.
struct EnabledCpus<'a>(&'a Shared);

impl core::fmt::Display for EnabledCpus<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let slots = self.0.slots();
        let enabled = |cpu: &usize| slots[*cpu].sampler.enabled.load(Ordering::Relaxed);
        if (0..slots.len()).all(|cpu| enabled(&cpu)) {
            return f.write_str("all");
        }
        let mut first = true;
        (0..slots.len()).filter(enabled).try_for_each(|cpu| {
            let comma = if core::mem::take(&mut first) { "" } else { "," };
            write!(f, "{comma}{cpu}")
        })
    }
}

/// A text that is truncated at its capacity, and then ends in [`REST`]. (The beginning of a list of CPUs would be
/// another list.)
struct Truncating<const N: usize>(heapless::String<N>);

/// What a truncated text ends in.
const REST: &str = "...";

impl<const N: usize> Write for Truncating<N> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        if self.0.push_str(text).is_ok() {
            return Ok(());
        }
        // They fit by their lengths: together the capacity.
        let _ = self.0.push_str(truncated(text, N - self.0.len()));
        let end = truncated(&self.0, N - REST.len()).len();
        self.0.truncate(end);
        let _ = self.0.push_str(REST);
        Err(core::fmt::Error)
    }
}

/// Bytes in hex; `-` if there are none.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

impl core::fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.0.is_empty() {
            return f.write_char('-');
        }
        self.0.iter().try_for_each(|byte| {
            let [.., high, low] = eight_digits(u32::from(*byte));
            f.write_char(char::from(high))?;
            f.write_char(char::from(low))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_too_long_is_not_another_list() {
        let list = |numbers| {
            let mut text = Truncating(heapless::String::<16>::new());
            let _ = write!(text, "cpus ");
            let _ = (0..numbers).try_for_each(|number| write!(text, "{},", number + 100));
            text.0
        };
        assert_eq!(
            [2, 3, 4].map(list).each_ref().map(|text| text.as_str()),
            ["cpus 100,101,", "cpus 100,101,...", "cpus 100,101,..."]
        );
    }
}
