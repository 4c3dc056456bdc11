//! The second stream: names, images, marks, settings. From ordinary code, so a lock is allowed.
//!
//! In: the kernel's calls. Out: meta records, read like a CPU's ring. Context: ordinary code, interrupts on or off; never
//! NMI. The lock is held with interrupts off, so that no thread that preempts the holder waits for it. Full: the record
//! is lost and counted.

use crate::format::record::{Kind, META_HEADER_WORDS};
use crate::format::text::eight_digits;
use crate::kernel::{Image, Kernel};
use crate::profiler::Profiler;
use crate::ring::Ring;
use crate::slot::ReaderPart;
use crate::sync::{AtomicU64, Ordering};
use crate::x86_64::{interrupts, tsc};
use core::fmt::Write;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicBool;

/// Longest text of a meta record in bytes; a longer one is cut at a character.
pub(crate) const MOST_TEXT: usize = 1024;

/// The meta stream.
pub(crate) struct Meta {
    ring: Ring,
    lock: spin::Mutex<()>,
    lost: AtomicU64,
    /// A quarter of the ring is unread and the reader has been told.
    pub(crate) woken: AtomicBool,
    pub(crate) reader: ReaderPart,
}

impl Meta {
    pub(crate) const fn new() -> Self {
        Self {
            ring: Ring::none(),
            lock: spin::Mutex::new(()),
            lost: AtomicU64::new(0),
            woken: AtomicBool::new(false),
            reader: ReaderPart::new(),
        }
    }

    pub(crate) fn install(&self, memory: &'static mut [MaybeUninit<u64>]) {
        if let Err(reason) = self.ring.install(memory) {
            panic!("kprof: meta memory: {reason:?}");
        }
    }

    pub(crate) fn ring(&self) -> Option<&Ring> {
        self.ring.get()
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Puts one record in, or says that there is no room.
    pub(crate) fn put(&self, kind: Kind, values: [u64; 3], text: &str) -> bool {
        let text = &text[..text.floor_char_boundary(MOST_TEXT)];
        let tsc = tsc::read();
        let stored = interrupts::without(|| {
            let _only_producer = self.lock.lock();
            let ring = self.ring.get()?;
            let mut sink = ring.room();
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

    /// Puts one record in, or counts it as lost.
    fn put_or_lose(&self, kind: Kind, values: [u64; 3], text: &str) {
        if !self.put(kind, values, text) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
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

impl<K: Kernel> Profiler<K> {
    /// Names a context, at its birth or when its name changes. Context: ordinary code.
    pub fn context_name(&self, id: u64, name: &str) {
        self.meta.put_or_lose(Kind::ContextName, [id, 0, 0], name);
    }

    /// Tells of a code image: the kernel once, a module when it is loaded. Context: ordinary code.
    pub fn image(&self, image: &Image<'_>) {
        let mut text = heapless::String::<MOST_TEXT>::new();
        let name = &image.name[..image.name.floor_char_boundary(MOST_TEXT / 2)];
        // Cannot overflow: half the room for the name, 2 bytes of text for each of at most 64 of the id.
        let _ = write!(text, "{name} {}", Hex(&image.build_id[..image.build_id.len().min(64)]));
        self.meta.put_or_lose(Kind::Image, [image.load, image.text.0, image.text.1], &text);
    }

    /// Sets a mark in time. Context: ordinary code.
    pub fn mark(&self, name: &str) {
        self.meta.put_or_lose(Kind::Mark, [0; 3], name);
    }

    /// Writes down that a setting changed.
    pub(crate) fn note_setting(&self, command: core::fmt::Arguments<'_>) {
        let mut text = heapless::String::<64>::new();
        // A command that is too long is cut; none is.
        let _ = text.write_fmt(command);
        self.meta.put_or_lose(Kind::Setting, [0; 3], &text);
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
