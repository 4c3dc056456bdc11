//! Where the kernel runs that a file describes. Stage: capture.
//!
//! In: the file's code and build id, or, of a file without code, where its functions begin; executed addresses, and a
//! function that reads guest memory. Out: the slide, which is how much higher the kernel runs than its file says
//! (KASLR, PIE), and what was compared. A slide is a multiple of 4 KiB. It is taken only if it is the only one at which
//! the guest's memory has the file's code. Runs in: QEMU's process, on a vCPU's thread; for `attach`, in the tool.

mod calls;
pub mod file;

pub use file::File;

use calls::Calls;
use std::collections::HashSet;

const PAGE: u64 = 4096;
/// A list of symbols does not say where the last function ends: it has this many bytes at most.
const LAST_FUNCTION: u64 = 64 * 1024;
/// The lowest address in the upper half of the address space.
const UPPER: u64 = 1 << 63;
/// Bytes that are looked for at first, and how many of 100 must be the same: relocations and patches change some.
const WINDOW: usize = 64;
const MIN_WINDOW: usize = 16;
const LIKE_PERCENT: u64 = 75;
/// Of 1000 bytes this many must be the same: of a kernel whose memory has the file's build id, and of any other one.
const SAME_OF_BUILD: u64 = 750;
const SAME: u64 = 999;
/// Below this part the memory is not this kernel's, and its build id says nothing.
const PLAUSIBLE: u64 = 500;
/// So many pages are looked at until the place is found.
const MAX_TRIED: usize = 1 << 14;

/// Reads guest memory. False if it is not mapped.
pub type Read<'a> = &'a dyn Fn(u64, &mut [u8]) -> bool;

/// How far it is known where the kernel runs; a later one says more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum State {
    /// No code of a kernel was executed.
    #[default]
    Nothing = 0,
    /// None of the file's code is where code was executed.
    Nowhere = 1,
    /// Some of it is, and other bytes differ.
    Differs = 2,
    /// It is at several slides.
    Ambiguous = 3,
    /// It is the code of another build.
    OtherBuild = 4,
    Placed = 5,
}

/// What was found out.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Outcome {
    pub state: State,
    /// What was the same, of what was compared: bytes of code, or targets of calls that are functions.
    pub same: u64,
    pub compared: u64,
    pub slide: u64,
    /// The build id in the guest's memory; empty if it was not read.
    pub id: Vec<u8>,
}

impl Outcome {
    /// As words of a message.
    pub fn words(&self) -> Vec<u64> {
        let mut words = vec![self.state as u64, self.same, self.compared, self.slide];
        words.extend(self.id.iter().map(|byte| u64::from(*byte)));
        words
    }
}

/// Looks for the kernel.
#[derive(Debug)]
pub struct Finder {
    file: File,
    calls: Calls,
    /// The only slide that is tried, if it was given.
    given: Option<u64>,
    /// Whether the kernel is linked into the upper half: it is not looked for in the lower one.
    is_upper: bool,
    /// The most pages of code that are compared.
    max_pages: u64,
    tried: HashSet<u64>,
    pub outcome: Outcome,
    /// Where the kernel ran before the guest rebooted.
    pub earlier: Option<u64>,
}

impl Finder {
    pub fn new(file: File, given: Option<u64>, max_pages: u64) -> Self {
        let (calls, is_upper) = (Calls::new(&file.starts), file.range().0 >= UPPER);
        Self {
            file,
            calls,
            given,
            is_upper,
            max_pages,
            tried: HashSet::new(),
            outcome: Outcome::default(),
            earlier: None,
        }
    }

    /// Begins anew, because the guest has rebooted.
    pub fn restart(&mut self) {
        self.earlier = self.is_placed().then_some(self.outcome.slide).or(self.earlier);
        self.tried.clear();
        self.outcome = Outcome::default();
    }

    pub fn is_placed(&self) -> bool {
        self.outcome.state == State::Placed
    }

    /// The addresses of the file that the slide moves: the first, and one past the last.
    pub fn range(&self) -> (u64, u64) {
        self.file.range()
    }

    /// Looks where this executed code of the kernel is in the file. True if this has placed the kernel.
    #[inline]
    pub fn look(&mut self, address: u64, read: Read<'_>) -> bool {
        !self.is_placed() && (address >= UPPER || !self.is_upper) && self.look_anew(address, read)
    }

    /// The first address of the running kernel's code and one past the last, if they are in the lower half. Without the
    /// kernel's file, its code may be anywhere there.
    pub fn lower(this: Option<&Self>) -> (u64, u64) {
        let Some(Self { file, outcome, .. }) = this else { return (PAGE, UPPER) };
        let (start, end) = file.range();
        let last = if file.code.is_empty() { LAST_FUNCTION } else { 0 };
        match outcome.state {
            State::Placed => (start.wrapping_add(outcome.slide), end.wrapping_add(outcome.slide).wrapping_add(last)),
            _ => (0, 0),
        }
    }

    /// Looks anew: whether the kernel is where it was found. `None` if this address does not tell.
    pub fn is_unmoved(&mut self, address: u64, read: Read<'_>) -> Option<bool> {
        let before = self.outcome.clone();
        self.tried.clear();
        self.outcome = Outcome::default();
        let is_found = self.look(address, read);
        let after = std::mem::replace(&mut self.outcome, before);
        is_found.then_some(after.slide == self.outcome.slide)
    }

    /// Looks here, and gives the slide if it is known then.
    pub fn slide(&mut self, address: u64, read: Read<'_>) -> Option<u64> {
        self.look(address, read);
        self.is_placed().then_some(self.outcome.slide)
    }

    #[cold]
    fn look_anew(&mut self, address: u64, read: Read<'_>) -> bool {
        if self.tried.len() >= MAX_TRIED || !self.tried.insert(address / PAGE) {
            return false;
        }
        let outcome = match self.file.code.is_empty() {
            true => self.calls.place(address, self.given, read),
            false => self.by_code(address, read),
        };
        self.outcome = std::mem::take(&mut self.outcome).max(outcome);
        self.is_placed()
    }

    fn by_code(&self, address: u64, read: Read<'_>) -> Outcome {
        let slides = match self.given {
            Some(given) => self.file.has(address.wrapping_sub(given)).then_some(given).into_iter().collect(),
            None => self.candidates(address, read),
        };
        let mut best = Outcome { state: State::Nowhere, ..Outcome::default() };
        for slide in slides {
            let outcome = self.compare(slide, read);
            if outcome.state == State::Placed && best.state == State::Placed {
                return Outcome { state: State::Ambiguous, ..outcome };
            }
            best = best.max(outcome);
        }
        best
    }

    /// The slides at which the file has code like that at this address.
    fn candidates(&self, address: u64, read: Read<'_>) -> Vec<u64> {
        let mut window = [0; WINDOW];
        let mut bytes = WINDOW;
        while !read(address, &mut window[..bytes]) {
            // The next page may not be mapped.
            bytes /= 2;
            if bytes < MIN_WINDOW {
                return Vec::new();
            }
        }
        let mut slides = Vec::new();
        for piece in &self.file.code {
            let first = address.wrapping_sub(piece.address) % PAGE;
            for at in (first..piece.bytes.len() as u64).step_by(PAGE as usize) {
                let here = &piece.bytes[at as usize..];
                let bytes = bytes.min(here.len());
                let same = same(&window[..bytes], &here[..bytes]);
                if bytes >= MIN_WINDOW && same * 100 >= bytes as u64 * LIKE_PERCENT {
                    slides.push(address.wrapping_sub(piece.address + at));
                }
            }
        }
        slides
    }

    /// Compares the file's code with the memory at this slide.
    fn compare(&self, slide: u64, read: Read<'_>) -> Outcome {
        let pages: u64 = self.file.code.iter().map(|piece| piece.bytes.len() as u64 / PAGE + 1).sum();
        let step = pages.div_ceil(self.max_pages.max(1)) as usize;
        let mut outcome = Outcome { slide, ..Outcome::default() };
        let mut memory = [0; PAGE as usize];
        for piece in &self.file.code {
            for (at, code) in
                (piece.address..).step_by(PAGE as usize).zip(piece.bytes.chunks(PAGE as usize)).step_by(step)
            {
                let memory = &mut memory[..code.len()];
                if read(at.wrapping_add(slide), memory) {
                    outcome.compared += code.len() as u64;
                    outcome.same += same_but_moved(memory, code, slide);
                }
            }
        }
        let is_same = |of_1000: u64| outcome.compared > 0 && outcome.same * 1000 >= outcome.compared * of_1000;
        if let Some(id) = self.file.id.as_ref().filter(|_| is_same(PLAUSIBLE)) {
            let mut has = vec![0; id.bytes.len()];
            if read(id.address.wrapping_add(slide), &mut has) {
                outcome.id = has;
            }
        }
        let is_build = self.file.id.as_ref().map(|id| id.bytes == outcome.id).filter(|_| !outcome.id.is_empty());
        outcome.state = match is_build {
            _ if !is_same(PLAUSIBLE) => State::Nowhere,
            Some(false) => State::OtherBuild,
            Some(true) if is_same(SAME_OF_BUILD) => State::Placed,
            None if is_same(SAME) => State::Placed,
            _ => State::Differs,
        };
        outcome
    }
}

/// How many bytes are the same, or belong to a 32-bit word that the kernel has relocated. An absolute address is higher
/// by the slide. A distance from the instruction to an address that was not moved is lower by the slide.
fn same_but_moved(memory: &[u8], code: &[u8], slide: u64) -> u64 {
    let word = |bytes: &[u8], at: usize| {
        let bytes: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes))
    };
    let moved = |at: usize| {
        let by = word(memory, at)?.wrapping_sub(word(code, at)?);
        [slide as u32, (slide as u32).wrapping_neg()].contains(&by).then_some(at + 4)
    };
    let (mut same, mut at) = (0, 0);
    while at < code.len() {
        let (from, end) = (at, (at.saturating_sub(3)..=at).find_map(moved).filter(|_| memory[at] != code[at]));
        same += u64::from(memory[at] == code[at]) + end.map_or(0, |end| (end - from) as u64);
        at = end.unwrap_or(at + 1);
    }
    same
}

/// How many bytes are the same.
fn same(a: &[u8], b: &[u8]) -> u64 {
    a.iter().zip(b).filter(|(a, b)| a == b).count() as u64
}
