//! The simulated machine: the CPU number of each thread, the state of each CPU, the log, the mapped user pages.

use std::alloc::{alloc_zeroed, Layout};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::arch::interrupt::InterruptStack;
use crate::cpu_set::LogicalCpuId;
use crate::memory::{RmmA, RmmArch};
use crate::percpu::{PercpuBlock, ALL_PERCPU_BLOCKS};
#[cfg(all(feature = "profiling", target_arch = "x86_64"))]
use crate::profiling;

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// The CPU number of this thread.
pub fn cpu() -> usize {
    CURRENT.get()
}

/// Runs `work` as another CPU.
pub fn on<T>(cpu: usize, work: impl FnOnce() -> T) -> T {
    let before = CURRENT.replace(cpu);
    let result = work();
    CURRENT.set(before);
    result
}

/// Creates the per-CPU blocks of `count` CPUs.
pub fn power_on(count: usize) {
    for (cpu, place) in ALL_PERCPU_BLOCKS.iter().enumerate().take(count) {
        let block = Box::leak(Box::new(PercpuBlock::new(LogicalCpuId::new(cpu as u32))));
        place.store(block, std::sync::atomic::Ordering::SeqCst);
    }
}

/// Starts this many CPUs, in the order of the kernel's start, up to where they can be sampled.
#[cfg(all(feature = "profiling", target_arch = "x86_64"))]
pub fn boot(count: usize) {
    power_on(count);
    // SAFETY: the CPUs are counted before any is set up.
    unsafe { profiling::allocate(count as u32) };
    // SAFETY: each CPU sets itself up once.
    (0..count).for_each(|cpu| on(cpu, || unsafe { profiling::init() }));
}

/// Runs the sampler on this CPU, on a thread of its own that does not end.
#[cfg(all(feature = "profiling", target_arch = "x86_64"))]
pub fn start_sampler(cpu: u32) {
    let sample = move || profiling::maybe_run_profiling_helper_forever(LogicalCpuId::new(cpu));
    std::thread::spawn(move || on(cpu as usize, sample));
}

static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Adds a line that the drop-in logs.
pub fn log(level: &str, line: String) {
    LOG.lock().unwrap().push(format!("{level}: {line}"));
}

/// The log so far.
pub fn logged() -> Vec<String> {
    LOG.lock().unwrap().clone()
}

/// Waits for a line that contains `text`, as [`until`] does, and returns it.
pub fn wait_for(text: &str) -> String {
    let find = || logged().into_iter().rfind(|line| line.contains(text));
    until(&format!("a line with {text:?}"), || find().is_some());
    find().unwrap()
}

type States = Mutex<HashMap<usize, InterruptStack>>;

/// The registers of each CPU when the next NMI comes. CPUs that are not in the map take none.
pub fn states() -> &'static States {
    static STATES: OnceLock<States> = OnceLock::new();
    STATES.get_or_init(States::default)
}

/// When each CPU was sent an NMI.
pub static NMIS: Mutex<Vec<(usize, Instant)>> = Mutex::new(Vec::new());

/// An NMI on a CPU.
pub fn nmi(cpu: usize) {
    NMIS.lock().unwrap().push((cpu, Instant::now()));
    let states = states().lock().unwrap();
    if let Some(state) = states.get(&cpu) {
        // SAFETY: this plays the NMI entry. The interrupted code does not continue, because it waits for the lock.
        #[cfg(all(feature = "profiling", target_arch = "x86_64"))]
        on(cpu, || unsafe { crate::profiling::nmi_handler(state) });
        #[cfg(not(all(feature = "profiling", target_arch = "x86_64")))]
        let _ = state;
    }
}

/// The counts with which the timer was started.
pub static TIMER_COUNTS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// Host memory for the first of the tables that map user pages.
pub fn user_tables() -> usize {
    static ROOT: OnceLock<usize> = OnceLock::new();
    *ROOT.get_or_init(|| aligned(4096))
}

/// The physical address of host memory, which is all in the linear map.
fn physical(address: usize) -> usize {
    address - RmmA::PHYS_OFFSET
}

/// Maps a user page to a frame, in four levels of tables.
pub fn map_frame(page: usize, frame: usize) {
    const USER_PRESENT: usize = 5;
    static LOCK: Mutex<()> = Mutex::new(());
    let _guard = LOCK.lock().unwrap();
    let place = |table: usize, shift: usize| table + (page >> shift & 511) * 8;
    let table = [39, 30, 21].iter().fold(user_tables(), |table, shift| {
        let place = place(table, *shift);
        if peek(place) == 0 {
            poke(place, physical(aligned(4096)) | USER_PRESENT);
        }
        (peek(place) & !0xfff) + RmmA::PHYS_OFFSET
    });
    poke(place(table, 12), frame | USER_PRESENT);
}

/// Allocates memory of `bytes`, aligned to its size, which is never freed. Returns its address.
pub fn aligned(bytes: usize) -> usize {
    let layout = Layout::from_size_align(bytes, bytes).unwrap();
    // SAFETY: the layout is not empty.
    unsafe { alloc_zeroed(layout) as usize }
}

/// Writes a word of such memory.
pub fn poke(address: usize, word: usize) {
    // SAFETY: the tests only write to memory from `aligned`.
    unsafe { (address as *mut usize).write_volatile(word) }
}

/// Reads a word of such memory.
fn peek(address: usize) -> usize {
    // SAFETY: the caller gives an address in memory from `aligned`.
    unsafe { (address as *const usize).read_volatile() }
}

/// Maps a user page.
pub fn map_user(page: usize) -> usize {
    let memory = aligned(4096);
    map_frame(page, physical(memory));
    memory
}

/// The present value of a CPU's counter in kprof's control text.
#[cfg(feature = "profiling")]
pub fn counter(cpu: usize, name: &str) -> usize {
    let (mut text, key) = (String::new(), format!("cpu.{cpu}.{name} "));
    #[cfg(target_arch = "x86_64")]
    use crate::profiling::nmi::PROFILER;
    #[cfg(target_arch = "aarch64")]
    use crate::profiling::own_timer::PROFILER;
    PROFILER.write_status(&mut text).unwrap();
    text.lines()
        .find_map(|line| line.strip_prefix(&key))
        .map_or(0, |value| value.parse().unwrap())
}

/// A counter in the line of a CPU's account.
pub fn shown(line: &str, name: &str) -> usize {
    let mut words = line.split(' ').skip_while(|word| *word != name).skip(1);
    words
        .next()
        .and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("no {name} in {line}"))
}

/// Waits at most two minutes until `is_so` returns true: the host may be busy.
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(
            start.elapsed() < Duration::from_secs(120),
            "{what}; {:#?}",
            logged()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}
