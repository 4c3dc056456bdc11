//! The second stream: names, images, marks, settings. From ordinary code, so a lock is allowed.
//!
//! In: the kernel's calls. Out: meta records, read like a CPU's ring. Runs in: ordinary code, interrupts on or off;
//! never in an NMI. The lock is held with interrupts off, so that no thread that preempts the holder waits for it, for
//! the time that one record of at most 136 words takes.
//!
//! Full: as long as nobody has read anything under the present claim, the newest records replace the oldest, so that a
//! reader that starts late gets the names of what lives now; these count as overwritten. After that a record that does
//! not fit is lost and counted. Names leave an eighth of the ring to settings, marks and images.

use crate::format::record::{Kind, META_HEADER_WORDS};
use crate::format::text::eight_digits;
use crate::kernel::Image;
use crate::ring::{Ring, Sink};
use crate::state::Shared;
use crate::state::choices::{Choices, Key};
use crate::state::owner::Activity;
use crate::state::stream::{Reader, Stream};
use crate::sync::{AtomicU64, Ordering};
use crate::x86_64::{interrupts, tsc};
use core::fmt::Write;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicBool;

/// Longest text of a meta record in bytes; a longer one is cut at a character.
pub(crate) const MOST_TEXT: usize = 1024;

/// The largest meta record in words.
const MAX_RECORD_WORDS: u64 = (META_HEADER_WORDS + MOST_TEXT.div_ceil(8)) as u64;

/// The meta stream.
pub(crate) struct Meta {
    ring: Ring,
    lock: spin::Mutex<()>,
    lost: AtomicU64,
    overwritten: AtomicU64,
    /// A quarter of the ring is unread and the reader has been told.
    pub(crate) woken: AtomicBool,
    pub(crate) reader: Reader,
}

impl Meta {
    pub(crate) const fn new() -> Self {
        Self {
            ring: Ring::none(),
            lock: spin::Mutex::new(()),
            lost: AtomicU64::new(0),
            overwritten: AtomicU64::new(0),
            woken: AtomicBool::new(false),
            reader: Reader::new(),
        }
    }

    pub(crate) fn install(&self, memory: &'static mut [MaybeUninit<u64>]) -> Result<(), crate::errors::BadMemory> {
        self.ring.install(memory)
    }

    /// The ring with its reader, once there is memory.
    pub(crate) fn stream(&self) -> Option<Stream<'_>> {
        Some(Stream { ring: self.ring.get()?, reader: &self.reader })
    }

    /// Records that found no room.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Records that were replaced by newer ones before anybody had read them.
    pub(crate) fn overwritten(&self) -> u64 {
        self.overwritten.load(Ordering::Relaxed)
    }

    /// Puts one record in, or says that there is no room.
    pub(crate) fn put(&self, kind: Kind, values: [u64; 3], text: &str) -> bool {
        let text = truncated(text, MOST_TEXT);
        let words = (META_HEADER_WORDS + text.len().div_ceil(8)) as u64;
        let tsc = tsc::read();
        let stored = interrupts::without(|| {
            let _only_producer = self.lock.lock();
            let ring = self.ring.get()?;
            let reserve = if kind == Kind::ContextName { ring.capacity() / 8 } else { 0 };
            let mut sink = self.room(ring, words + reserve)?;
            let header = [0, ring.head(), 0, tsc, values[0], values[1], values[2], text.len() as u64];
            header.into_iter().chain(words_of(text)).for_each(|word| sink.push(word));
            if sink.is_full() {
                return None;
            }
            ring.publish(kind, sink.words());
            Some(())
        });
        stored.is_some()
    }

    /// Room for a record, `words` with what is to stay free. Replaces the oldest records where nobody can miss them.
    fn room<'r>(&self, ring: &'r Ring, words: u64) -> Option<Sink<'r>> {
        if ring.capacity().saturating_sub(ring.head().saturating_sub(ring.tail())) >= words {
            return Some(ring.room());
        }
        // Whoever has read something under the present claim gets what follows it: nothing may vanish in between, also
        // where all that was read has been freed. (A claim begins with the position 0.)
        let owner = self.reader.owner();
        let is_read = || owner.claim() != 0 && self.reader.position() > 0;
        if is_read() || owner.take_any(Activity::Replace).is_err() {
            return None;
        }
        // Looked at again: now nobody can read.
        let sink = if is_read() {
            None
        } else {
            let unread = self.reader.position();
            let free = || ring.capacity().saturating_sub(ring.head().saturating_sub(ring.tail()));
            while free() < words {
                // What an export has written out already is not missed.
                let missed = ring.tail() >= unread;
                let (_, replaced) = ring.room_by_force(free() + 1);
                self.overwritten.fetch_add(if missed { replaced } else { 0 }, Ordering::Relaxed);
            }
            Some(ring.room())
        };
        owner.leave();
        sink
    }

    /// Puts one record in, or counts it as lost.
    fn put_or_lose(&self, kind: Kind, values: [u64; 3], text: &str) {
        if !self.put(kind, values, text) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The beginning of a text: at most so many bytes, up to a character's end.
pub(crate) fn truncated(text: &str, max_bytes: usize) -> &str {
    let mut end = text.len().min(max_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The bytes of a text as words, little endian, zero padded.
fn words_of(text: &str) -> impl Iterator<Item = u64> {
    text.as_bytes().chunks(8).map(|bytes| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    })
}

const _: () = assert!(META_HEADER_WORDS == 8, "`put` writes eight words before the text");

const _: () = assert!(MAX_RECORD_WORDS == 136, "the head of this file says so");

impl Shared {
    /// Names a context, at its birth or when its name changes.
    pub(crate) fn context_name(&self, id: u64, name: &str) {
        self.meta.put_or_lose(Kind::ContextName, [id, 0, 0], name);
    }

    /// Tells of a code image: the kernel once, a module when it is loaded.
    pub(crate) fn image(&self, image: &Image<'_>) {
        let mut text = heapless::String::<MOST_TEXT>::new();
        let name = truncated(image.name, MOST_TEXT / 2);
        // Cannot overflow: half the room for the name, 2 bytes of text for each of at most 64 of the id.
        let _ = write!(text, "{name} {}", Hex(&image.build_id[..image.build_id.len().min(64)]));
        self.meta.put_or_lose(Kind::Image, [image.load, image.text.0, image.text.1], &text);
    }

    /// Sets a mark in time.
    pub(crate) fn mark(&self, name: &str) {
        self.meta.put_or_lose(Kind::Mark, [0; 3], name);
    }

    /// Writes down that a setting changed.
    pub(crate) fn note_setting(&self, command: core::fmt::Arguments<'_>) {
        // A longer one (a list of many CPUs) is truncated.
        let mut text = Truncating(heapless::String::<256>::new());
        let _ = text.write_fmt(command);
        self.meta.put_or_lose(Kind::Setting, [0; 3], &text.0);
    }

    /// Writes down the values of these choices.
    pub(crate) fn note_choices(&self, keys: Key, choices: &Choices) {
        let keep = |keep| if keep { "keep" } else { "drop" };
        for key in keys.iter() {
            match key {
                Key::HZ => self.note_setting(format_args!("hz {}", choices.hz)),
                Key::INTERVAL => {
                    self.note_setting(format_args!(
                        "gaps {}",
                        if choices.random_interval { "random" } else { "fixed" }
                    ));
                }
                Key::SEED => self.note_setting(format_args!("seed {}", choices.seed)),
                Key::IDLE => self.note_setting(format_args!("{} idle", keep(choices.keep_idle))),
                Key::USER => self.note_setting(format_args!("{} user", keep(choices.keep_user))),
                Key::BACKOFF => {
                    self.note_setting(format_args!("backoff {}", if choices.backoff { "on" } else { "off" }));
                }
                Key::DEPTH => self.note_setting(format_args!("depth {}", choices.depth)),
                Key::MODE => self.note_setting(format_args!("mode {}", choices.mode.name())),
                _ => {}
            }
        }
    }

    /// Writes down which CPUs get ticks.
    pub(crate) fn note_cpus(&self) {
        self.note_setting(format_args!("cpus {}", EnabledCpus(self)));
    }

    /// Writes all settings down, for a reader that may have missed their changes.
    pub(crate) fn note_all(&self) {
        self.note_setting(format_args!("way {}", self.trigger().name()));
        self.note_choices(Key::all(), &self.live.choices());
        self.note_cpus();
    }
}

/// The list of CPUs as ctl takes it.
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

/// A text that takes what fits.
struct Truncating<const N: usize>(heapless::String<N>);

impl<const N: usize> Write for Truncating<N> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let fits = truncated(text, N - self.0.len());
        // It fits by its length.
        let _ = self.0.push_str(fits);
        Ok(())
    }
}

/// Bytes in hex, `-` for none.
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
