//! Runs the unwinder on arrays: a machine with a few stacks and some text, whose memory panics at every read outside
//! them.

mod entry_frames;
mod frame_cache;
mod innermost_callers;
#[cfg(all(target_os = "linux", not(miri)))]
mod single_step;
mod table;
mod wild;

use super::user::{ENTRY_PLACES, UserEntry};
use super::{FrameCache, MAX_SCANNED, Memory, ROUND, Stacks, Text, TextCell, Walk, go_on, innermost, user_frames};
use crate::format::marker::{Marker, TruncationReason};
use crate::kernel::{CallerEntryFrame, CompiledEntry, EntryFrame, Kernel, Registers, Task, UnwindTable};
use crate::ring::Sink;
use crate::sync::{AtomicU64, Ordering};
use core::ops::Range;
use std::collections::HashMap;
use std::sync::Mutex;

pub(super) const TEXT: u64 = 0xffff_ffff_8020_0000;
pub(super) const TEXT_BYTES: usize = 0x1000;
/// The code of entry stubs, without marker words.
pub(super) const STUBS: Range<u64> = TEXT + 0x500..TEXT + 0x600;
pub(super) const STACK: u64 = 0xffff_c000_0000_1000;

/// A kernel whose memory is arrays.
#[derive(Debug, Default)]
pub(super) struct Machine {
    /// Stacks: where each begins, and its words.
    pub(super) stacks: Vec<(u64, Vec<u64>)>,
    pub(super) text: Vec<u8>,
    /// More kernel code, which `is_text` knows. No byte of it can be read.
    pub(super) module: Range<u64>,
    pub(super) user: HashMap<u64, u64>,
    pub(super) entry: Option<(u64, EntryFrame)>,
    pub(super) entry_frame: Option<(u64, CallerEntryFrame)>,
    /// What the code of entry stubs is instead, if it is compiled.
    pub(super) compiled: Option<CompiledEntry>,
    /// The range that it declares instead of those of its stacks.
    pub(super) lie: Option<Range<u64>>,
    pub(super) table: Option<UnwindTable>,
    pub(super) depth: usize,
    pub(super) user_frames: bool,
    /// How often code was read.
    pub(super) decoded: core::sync::atomic::AtomicUsize,
    /// Every stack word that was read.
    pub(super) read: Mutex<Vec<u64>>,
}

impl Machine {
    /// One stack of `words` words, text of `nop`s.
    pub(super) fn new(words: usize) -> Self {
        let text = vec![0x90; TEXT_BYTES];
        Self { stacks: vec![(STACK, vec![0; words])], text, depth: 64, ..Self::default() }
    }

    /// Writes the word at `address`, which must be in a stack.
    pub(super) fn set(&mut self, address: u64, word: u64) {
        let place = self.stacks.iter_mut().find_map(|(base, words)| {
            let index = address.checked_sub(*base)? as usize / 8;
            words.get_mut(index)
        });
        *place.expect("an address in a stack") = word;
    }

    /// A frame at `address`: saved rbp and return address.
    pub(super) fn frame(&mut self, address: u64, next: u64, return_address: u64) {
        self.set(address, next);
        self.set(address + 8, return_address);
    }

    /// A hardware frame at `address`.
    pub(super) fn hardware_frame(&mut self, address: u64, rip: u64, cs: u64, rsp: u64) {
        for (word, at) in [rip, cs, 0x202, rsp, 0x10].into_iter().zip((address..).step_by(8)) {
            self.set(at, word);
        }
    }

    /// Writes code.
    pub(super) fn code(&mut self, offset: u64, bytes: &[u8]) {
        self.text[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// What a walk from these registers pushes after the first address, called as the handler calls it; and whether it
    /// passed an interrupt.
    pub(super) fn walk(&self, at: &Registers) -> (Vec<u64>, bool) {
        let places = [const { AtomicU64::new(0xdead) }; 1024];
        let mut walk = Walk {
            kernel: self,
            memory: self,
            text: Text::new((TEXT, TEXT + self.text.len() as u64)),
            sink: Sink::over(&places),
            frames_left: self.depth - 1,
            scan_left: MAX_SCANNED,
            stacks: Stacks::new(),
            user_frames: self.user_frames,
            in_interrupt: false,
        };
        // First the slow path alone, then the fast path finished by the slow path: both must give the same words.
        walk.run(at);
        assert!(!walk.sink.is_full(), "room for every walk");
        let slow_path = (words(&places, walk.sink.words()), walk.in_interrupt);
        if at.from_user && self.user_frames {
            let taken = user_frames(self, at.fp, &places[..self.depth]);
            assert_eq!((words(&places, taken), false), slow_path, "fast path and slow path differ");
        }
        // With an empty cache, with the right guesses that the first turn has left, and with wrong ones.
        let cache = FrameCache::new();
        for turn in 0..if !at.from_user && self.table.is_none() { 3 } else { 0 } {
            if turn == 2 {
                cache.ends.iter().for_each(|end| end.store(TEXT, Ordering::Relaxed));
            }
            walk.sink = Sink::over(&places);
            (walk.frames_left, walk.stacks, walk.in_interrupt) = (self.depth - 1, Stacks::new(), false);
            walk.scan_left = MAX_SCANNED;
            if self.fast_walk(&mut walk, at, &cache) {
                let plain = (words(&places, walk.sink.words()), walk.in_interrupt);
                assert_eq!(plain, slow_path, "fast path and slow path differ, turn {turn}");
            }
        }
        slow_path
    }

    /// The fast path and its end, as the handler runs them. Returns whether the fast path took anything.
    fn fast_walk(&self, walk: &mut Walk<'_, '_, Self, &Self>, at: &Registers, cache: &FrameCache) -> bool {
        let room = walk.sink.contiguous(walk.frames_left);
        let text = TextCell::new();
        text.set(walk.text);
        let Some(mut run) = innermost(self, walk.memory, &text, at, room.as_chunks().0, cache) else { return false };
        let taken = (run.end - room.as_ptr().addr()) / 8;
        walk.sink.advance(taken);
        walk.frames_left -= taken;
        if run.cursor.has_more() {
            let (places, from) = (walk.sink.contiguous(ROUND), (run.cursor, run.bounds));
            let places = places.first_chunk().unwrap();
            let (taken, after) = go_on(self, walk.memory, walk.text, from, places, walk.frames_left);
            walk.sink.advance(taken);
            let Some(after) = after else { return true };
            walk.frames_left -= taken;
            run = after;
        }
        if run.at_root() {
            return true;
        }
        match run.cursor.user_entry(self, self, run.bounds) {
            Some(entry) if self.finish_in_user_code(walk, &entry) => {}
            _ => walk.finish(run.cursor, at.sp),
        }
        true
    }

    /// The usual end of a walk, as the handler writes it. Returns whether the depth allows it.
    fn finish_in_user_code(&self, walk: &mut Walk<'_, '_, Self, &Self>, entry: &UserEntry) -> bool {
        let Some(frames_left) = walk.frames_left.checked_sub(entry.frames()) else { return false };
        let places = walk.sink.contiguous(1000);
        entry.write::<ENTRY_PLACES>(places.first_chunk().unwrap());
        let words = entry.words();
        let user = if self.user_frames { user_frames(self, entry.fp(), &places[words..][..=frames_left]) } else { 0 };
        walk.sink.advance(words + user);
        walk.in_interrupt = entry.is_interrupt();
        true
    }
}

fn words(places: &[AtomicU64], count: usize) -> Vec<u64> {
    places[..count].iter().map(|place| place.load(Ordering::Relaxed)).collect()
}

// SAFETY: no memory is read by address: `Memory for &Machine` looks each word up in its arrays and panics if it is not
// there.
unsafe impl Kernel for Machine {
    fn cpu(&self) -> usize {
        0
    }
    fn signal(&self, _cpus: &crate::CpuSet<'_>) {}
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        if self.lie.is_some() {
            return self.lie.clone();
        }
        let ranges = self.stacks.iter().map(|(base, words)| *base..base + 8 * words.len() as u64);
        ranges.into_iter().find(|range| range.contains(&address))
    }
    fn task(&self) -> Task {
        Task { id: 0, idle: false }
    }
    fn read_user(&self, address: u64) -> Option<u64> {
        self.user.get(&address).copied()
    }
    fn is_text(&self, address: u64) -> bool {
        self.module.contains(&address)
    }
    fn is_entry_code(&self, address: u64) -> bool {
        self.compiled.is_none() && STUBS.contains(&address)
    }
    fn compiled_entry(&self, address: u64) -> Option<CompiledEntry> {
        self.compiled.filter(|_| STUBS.contains(&address))
    }
    fn entry_frame(&self, at: &Registers) -> Option<EntryFrame> {
        self.entry.filter(|(rip, _)| *rip == at.pc).map(|(_, frame)| frame)
    }
    fn caller_entry_frame(&self, return_address: u64, _frame_pointer: u64) -> Option<CallerEntryFrame> {
        assert!(self.is_entry_code(return_address), "asked only for stubs");
        self.entry_frame.filter(|(address, _)| *address == return_address).map(|(_, entry_frame)| entry_frame)
    }
    fn unwind_table(&self) -> Option<&UnwindTable> {
        self.table.as_ref()
    }
    fn sleep_ns(&self, _ns: u64) {}
}

impl Memory for &Machine {
    unsafe fn stack(&self, address: u64) -> u64 {
        assert_eq!(address % 8, 0, "misaligned read at {address:#x}");
        let range = self.stack_range(address).unwrap_or_else(|| panic!("read outside of all stacks at {address:#x}"));
        let (_, words) = self.stacks.iter().find(|(base, _)| *base == range.start).expect("the range is a stack");
        self.read.lock().unwrap().push(address);
        words[(address - range.start) as usize / 8]
    }
    unsafe fn stack_unaligned(&self, address: u64) -> u64 {
        let (low, shift) = (address & !7, 8 * (address & 7) as u32);
        // SAFETY: the machine checks every read.
        let (first, second) = unsafe { (self.stack(low), if shift == 0 { 0 } else { self.stack(low + 8) }) };
        ((u128::from(second) << 64 | u128::from(first)) >> shift) as u64
    }
    unsafe fn code(&self, address: u64) -> u64 {
        self.decoded.fetch_add(1, Ordering::Relaxed);
        let offset = address.checked_sub(TEXT).expect("read below the text") as usize;
        u64::from_le_bytes(self.text[offset..offset + 8].try_into().expect("eight bytes"))
    }
}

/// Registers of kernel code in the middle of a function with a frame.
pub(super) fn registers(sp: u64, fp: u64) -> Registers {
    Registers { pc: TEXT + 0x100, sp, fp, link: 0, from_user: false, interrupts_on: true }
}

pub(super) fn truncated(reason: TruncationReason) -> u64 {
    Marker::Truncated(Ok(reason)).encode()
}

#[test]
fn a_chain_is_walked_from_leaf_to_root() {
    let mut machine = Machine::new(64);
    machine.frame(STACK + 80, STACK + 160, TEXT + 0x200);
    machine.frame(STACK + 160, STACK + 400, TEXT + 0x300);
    machine.frame(STACK + 400, 0, TEXT + 0x400);
    let (stack, in_interrupt) = machine.walk(&registers(STACK + 16, STACK + 80));
    assert_eq!(stack, [TEXT + 0x200, TEXT + 0x300, TEXT + 0x400]);
    assert!(!in_interrupt);
}

#[test]
fn every_depth_keeps_the_innermost_frames_and_marks_the_truncation() {
    let mut machine = Machine::new(1024);
    for frame in 0..100 {
        let at = STACK + 64 + 32 * frame;
        machine.frame(at, if frame == 99 { 0 } else { at + 32 }, TEXT + 8 * frame);
    }
    for depth in (1..=120).step_by(if cfg!(miri) { 33 } else { 1 }) {
        machine.depth = depth;
        let (stack, _) = machine.walk(&registers(STACK, STACK + 64));
        let kept = 100.min(depth - 1);
        let mut expected: Vec<u64> = (0..kept as u64).map(|frame| TEXT + 8 * frame).collect();
        if kept < 100 {
            expected.push(truncated(TruncationReason::Depth));
        }
        assert_eq!(stack, expected, "depth {depth}");
    }
}

#[test]
fn every_way_to_break_a_chain_is_told_apart() {
    let end = STACK + 64 * 8;
    let cases = [
        (STACK + 160 + 4, TruncationReason::Alignment),
        (STACK + 80, TruncationReason::Loop),
        (STACK + 72, TruncationReason::Loop),
        (STACK + 0x10_0000, TruncationReason::Range),
        (end - 8, TruncationReason::Range),
        (end, TruncationReason::Range),
        (STACK - 8, TruncationReason::Range),
        (0x8000_0000_0000_0000, TruncationReason::Range),
        (u64::MAX - 7, TruncationReason::Range),
        (0x1000, TruncationReason::Range),
    ];
    for (next, reason) in cases {
        let mut machine = Machine::new(64);
        machine.frame(STACK + 80, next, TEXT + 0x200);
        let (stack, _) = machine.walk(&registers(STACK + 16, STACK + 80));
        assert_eq!(stack, [TEXT + 0x200, truncated(reason)], "next frame {next:#x}");
    }
    for word in [0xdead_beef, TEXT - 1, TEXT + TEXT_BYTES as u64] {
        let mut machine = Machine::new(64);
        machine.frame(STACK + 80, STACK + 160, word);
        let (stack, _) = machine.walk(&registers(STACK + 16, STACK + 80));
        assert_eq!(stack, [truncated(TruncationReason::NotText)], "return address {word:#x}");
    }
}

#[test]
fn a_frame_pointer_below_the_stack_pointer_is_not_followed() {
    let mut machine = Machine::new(64);
    machine.frame(STACK + 16, 0, TEXT + 0x200);
    assert_eq!(machine.walk(&registers(STACK + 80, STACK + 16)).0, [truncated(TruncationReason::Loop)]);
}

#[test]
fn a_stack_pointer_outside_of_all_stacks_is_not_followed() {
    let machine = Machine::new(64);
    assert_eq!(machine.walk(&registers(0x1000, STACK + 16)).0, [truncated(TruncationReason::Range)]);
}

#[test]
fn the_chain_may_go_to_another_stack_but_not_round_and_round() {
    let mut machine = Machine::new(64);
    let other = STACK + 0x10_0000;
    machine.stacks.push((other, vec![0; 64]));
    machine.frame(STACK + 80, other + 80, TEXT + 0x200);
    machine.frame(other + 80, 0, TEXT + 0x300);
    assert_eq!(machine.walk(&registers(STACK + 16, STACK + 80)).0, [TEXT + 0x200, TEXT + 0x300]);
    machine.frame(other + 80, STACK + 80, TEXT + 0x300);
    let (stack, _) = machine.walk(&registers(STACK + 16, STACK + 80));
    assert_eq!(stack, [TEXT + 0x200, TEXT + 0x300, truncated(TruncationReason::Loop)]);
}
