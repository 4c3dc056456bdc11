//! A kernel whose only stack and text are arrays, for tests of the whole crate on a host.
#![allow(dead_code, reason = "each test uses its part")]

use core::mem::MaybeUninit;
use core::ops::Range;
use kprof::format::line::PointAccount;
use kprof::format::record::{Header, Kind, MetaHeader, POSITION, SampleHeader};
use kprof::{
    Config, ControlFile, CpuSet, CpuSlot, InitError, Kernel, NmiToken, Profiler, Registers, Setup, StateError,
    StreamFile, Task,
};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// The CPU that "runs" now, and whether its task is idle.
pub static CPU: AtomicUsize = AtomicUsize::new(1);
pub static IDLE: AtomicBool = AtomicBool::new(false);
/// How often the sampler has sent signals. No signal arrives: a test calls the handler itself.
pub static SIGNALS: AtomicU64 = AtomicU64::new(0);
static TEXT: [u8; 256] = [0x90; 256];
static STACK: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// What can be set up: a profiler, with events or without.
pub trait SetUp {
    fn init(&'static self, cpus: usize, setup: impl FnOnce() -> Setup) -> Result<(), InitError>;
    fn give_ring(&'static self, cpu: usize);
}

impl<K: Kernel> SetUp for Profiler<K> {
    fn init(&'static self, _: usize, setup: impl FnOnce() -> Setup) -> Result<(), InitError> {
        self.init(setup)
    }
    fn give_ring(&'static self, cpu: usize) {
        self.register(cpu, || memory(1024)).unwrap();
    }
}

/// A profiler and the slots of two CPUs.
pub type Machine = (&'static Profiler<ArrayKernel>, &'static [CpuSlot; 2]);

/// A machine of its own for a test, not set up yet.
pub fn machine() -> Machine {
    (Box::leak(Box::new(Profiler::new(ArrayKernel))), Box::leak(Box::new([const { CpuSlot::new() }; 2])))
}

/// Runs one test at a time: for tests that change the stack, or the number of the CPU that "runs".
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn text(offset: u64) -> u64 {
    TEXT.as_ptr() as u64 + offset
}

pub fn stack(word: u64) -> u64 {
    STACK.as_ptr().expose_provenance() as u64 + 8 * word
}

pub fn set(word: u64, value: u64) {
    STACK[word as usize].store(value, Ordering::Relaxed);
}

pub fn get(word: u64) -> u64 {
    STACK[word as usize].load(Ordering::Relaxed)
}

/// Registers of g, which was called by f, which was called by main: two frames, then the root.
pub fn registers() -> Registers {
    // Tests run at the same time and share the stack: a word is not written while another test's handler may read it,
    // except by a test that has changed it.
    static FIRST: Once = Once::new();
    let words = [(2, 1), (4, stack(8)), (5, text(20)), (8, 0), (9, text(40))];
    FIRST.call_once(|| words.iter().for_each(|(word, value)| set(*word, *value)));
    words.iter().filter(|(word, value)| get(*word) != *value).for_each(|(word, value)| set(*word, *value));
    Registers { pc: text(30), sp: stack(2), fp: stack(4), link: 0, from_user: false, interrupts_on: true }
}

/// A program's stack: where it begins, and its words. 0 cannot be read, like every other address.
pub const USER_STACK: u64 = 0x7fff_0000;
static USER: [AtomicU64; 160] = [const { AtomicU64::new(0) }; 160];
/// How often a word of the program was read.
pub static USER_READS: AtomicUsize = AtomicUsize::new(0);

/// Gives the program this many callers, of two words each, and returns its rbp.
pub fn user_callers(count: u64) -> u64 {
    let words = |caller| [USER_STACK + 16 * (caller + 1), user_caller(caller)];
    let chain = (0..count).flat_map(words).chain(std::iter::repeat(0));
    USER.iter().zip(chain).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
    USER_STACK
}

/// The address in user code of a caller.
pub fn user_caller(caller: u64) -> u64 {
    0x40_2000 + 16 * caller
}

thread_local! {
    static OWN_CPU: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Puts this thread on a CPU of its own. Two threads that record at the same time must not be on one CPU, because on a
/// CPU what interrupts ends before what it has interrupted goes on.
pub fn run_on_own_cpu(cpu: usize) {
    OWN_CPU.set(Some(cpu));
}

/// The number of the CPU that this thread is on.
pub fn this_cpu() -> usize {
    OWN_CPU.get().unwrap_or_else(|| CPU.load(Ordering::Relaxed))
}

pub struct ArrayKernel;

// SAFETY: the only CPU numbers are those that a test sets, one at a time for a thread; stack and text are statics of
// this program.
unsafe impl Kernel for ArrayKernel {
    fn cpu(&self) -> usize {
        this_cpu()
    }
    fn signal(&self, _cpus: &CpuSet<'_>) {
        SIGNALS.fetch_add(1, Ordering::SeqCst);
    }
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        (stack(0)..stack(64)).contains(&address).then(|| stack(0)..stack(64))
    }
    fn is_entry_code(&self, _address: u64) -> bool {
        false
    }
    fn read_user(&self, address: u64) -> Option<u64> {
        let place = address.checked_sub(USER_STACK)? / 8;
        USER_READS.fetch_add(1, Ordering::Relaxed);
        Some(USER.get(place as usize)?.load(Ordering::Relaxed)).filter(|word| *word != 0)
    }
    fn task(&self) -> Task {
        Task { id: 7, idle: IDLE.load(Ordering::Relaxed) }
    }
    fn sleep_ns(&self, ns: u64) {
        std::thread::sleep(std::time::Duration::from_nanos(ns.min(1_000_000)));
    }
}

/// Memory that is never freed. A static list keeps it reachable, so leak checkers do not report it.
pub fn memory(words: usize) -> &'static mut [MaybeUninit<u64>] {
    static KEPT: Mutex<Vec<AtomicPtr<MaybeUninit<u64>>>> = Mutex::new(Vec::new());
    let memory = Box::leak(vec![MaybeUninit::uninit(); words].into_boxed_slice());
    KEPT.lock().unwrap().push(AtomicPtr::new(memory.as_mut_ptr()));
    memory
}

/// Sets a profiler up with a ring of 1024 words on each CPU from 1.
pub fn set_up(machine: &'static impl SetUp, slots: &'static [CpuSlot], config: Config) {
    let tsc_hz = if config.tsc_hz == 0 { 1_000_000_000 } else { config.tsc_hz };
    let config = Config { tsc_hz, text: (text(0), text(256)), ..config };
    match machine.init(slots.len(), || Setup { slots, meta: memory(1024), config }) {
        Ok(()) | Err(kprof::InitError::Twice) => {}
        Err(error) => panic!("{error}"),
    }
    (1..slots.len()).for_each(|cpu| machine.give_ring(cpu));
}

pub fn token() -> NmiToken {
    // SAFETY: the "interrupted" stack is an array that nothing runs on.
    unsafe { NmiToken::new() }
}

/// The status as keys and values.
pub fn control<K: Kernel>(profiler: &Profiler<K>) -> HashMap<String, String> {
    values(&status(profiler))
}

/// The keys and values of a status.
pub fn values(status: &str) -> HashMap<String, String> {
    status.lines().filter_map(|line| line.split_once(' ')).map(|(key, value)| (key.into(), value.into())).collect()
}

fn status<K: Kernel>(profiler: &Profiler<K>) -> String {
    let mut text = String::new();
    profiler.write_status(&mut text).unwrap();
    text
}

/// Stops sampling. `stop` waits for a bounded time, and on a busy host the sampler's thread may be paused for longer,
/// so it is tried again.
pub fn stop<K: Kernel>(profiler: &Profiler<K>) {
    while let Err(error) = profiler.stop() {
        assert!(matches!(error, StateError::Sampler | StateError::Pending { .. }), "{error}");
    }
}

/// Tells the other threads of a test to end when this one ends, even if it ends with a failed assertion.
pub struct EndsOthers<'a>(pub &'a AtomicBool);

impl Drop for EndsOthers<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A daemon: a control file that has claimed the streams, and the stream of CPU 1.
pub struct Daemon {
    pub ctl: kprof::ControlFile,
    pub stream: kprof::StreamFile,
    pub meta: kprof::StreamFile,
}

impl Daemon {
    /// Opens the files for a process and claims the streams.
    pub fn claim<K: Kernel>(profiler: &'static Profiler<K>, process: u64) -> Self {
        let (ctl, meta) = (profiler.open_control(process), profiler.open_meta(process));
        ctl.write(b"protocol 1").unwrap();
        Self { ctl, meta, stream: profiler.open_stream(1, process).unwrap() }
    }

    /// Acknowledges CPU 1 up to `position`.
    pub fn acknowledge(&self, position: u64) -> Result<(), kprof::ControlError> {
        self.ctl.write(format!("ack 1 {position}").as_bytes()).map(|_| ())
    }
}

/// A counter of CPU 1.
pub fn counter(profiler: &Profiler<ArrayKernel>, name: &str) -> u64 {
    counters(profiler, [name])[0]
}

/// Several counters, from one status.
pub fn counters<const N: usize>(profiler: &Profiler<ArrayKernel>, names: [&str; N]) -> [u64; N] {
    let status = status(profiler);
    names.map(|name| {
        let counter = |line: &str| line.strip_prefix("cpu.1.")?.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
        status.lines().find_map(counter).unwrap_or_else(|| panic!("no counter {name} in\n{status}"))
    })
}

/// Converts the bytes of a read into words.
pub fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Reads the meta stream to its end and acknowledges it. `each` is called for each account of a point.
pub fn point_accounts<K: Kernel>(
    profiler: &Profiler<K>,
    ctl: &ControlFile,
    meta: &StreamFile,
    mut each: impl FnMut(&PointAccount<'_>),
) {
    ctl.write(b"flush").unwrap();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let bytes = meta.read(&mut buffer).unwrap();
        if bytes == 0 {
            return;
        }
        each_account(&buffer[..bytes], &mut each);
        let end = control(profiler)["meta.position-in"].clone();
        ctl.write(format!("ack meta {end}").as_bytes()).unwrap();
    }
}

/// Calls `each` for each account of a point in the bytes of a read of the meta stream.
pub fn each_account(bytes: &[u8], mut each: impl FnMut(&PointAccount<'_>)) {
    for record in records(bytes).iter().filter(|record| record.kind == Kind::PointAccount) {
        let MetaHeader { tsc, second, third, .. } = record.meta();
        each(&PointAccount::of_record(tsc, second, third, &record.text()));
    }
}

/// A framed record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub kind: Kind,
    pub words: Vec<u64>,
}

/// The records of a read, which are whole.
pub fn records(bytes: &[u8]) -> Vec<Record> {
    let (words, mut at, mut all) = (words(bytes), 0, Vec::new());
    while at < words.len() {
        let header = Header::decode(words[at]).expect("whole records");
        let end = at + usize::from(header.words);
        all.push(Record { kind: header.kind, words: words[at..end].to_vec() });
        at = end;
    }
    all
}

impl Record {
    pub fn position(&self) -> u64 {
        self.words[POSITION]
    }

    /// The position after the record.
    pub fn end(&self) -> u64 {
        self.position() + self.words.len() as u64
    }

    pub fn sample(&self) -> SampleHeader {
        SampleHeader::read(|at| self.words[at])
    }

    /// The addresses of a sample.
    pub fn stack(&self) -> Vec<u64> {
        self.words[SampleHeader::AT.address..].to_vec()
    }

    pub fn meta(&self) -> MetaHeader {
        MetaHeader::read(|at| self.words[at])
    }

    /// The text of a record of the meta stream.
    pub fn text(&self) -> String {
        let text: Vec<u8> = self.words[MetaHeader::WORDS..].iter().flat_map(|word| word.to_le_bytes()).collect();
        String::from_utf8(text[..self.meta().text_bytes as usize].to_vec()).unwrap()
    }
}
