//! The machine that the tests play: which CPU a thread is, what each CPU is doing, what was logged, what users have
//! mapped.

use std::alloc::{Layout, alloc_zeroed};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::arch::interrupt::InterruptStack;
use crate::cpu_set::LogicalCpuId;
use crate::percpu::{ALL_PERCPU_BLOCKS, PercpuBlock};

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// The CPU that this thread is.
pub fn cpu() -> usize {
    CURRENT.get()
}

/// Runs something as another CPU.
pub fn on<T>(cpu: usize, work: impl FnOnce() -> T) -> T {
    let before = CURRENT.replace(cpu);
    let result = work();
    CURRENT.set(before);
    result
}

/// Makes the per-CPU blocks of `count` CPUs.
pub fn power_on(count: usize) {
    for (cpu, place) in ALL_PERCPU_BLOCKS.iter().enumerate().take(count) {
        let block = Box::leak(Box::new(PercpuBlock::new(LogicalCpuId::new(cpu as u32))));
        place.store(block, std::sync::atomic::Ordering::SeqCst);
    }
}

static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// What the drop-in logs.
pub fn log(level: &str, line: String) {
    LOG.lock().unwrap().push(format!("{level}: {line}"));
}

/// The log so far.
pub fn logged() -> Vec<String> {
    LOG.lock().unwrap().clone()
}

/// Waits for a line that contains `text`, at most ten seconds, and gives it.
pub fn wait_for(text: &str) -> String {
    let start = Instant::now();
    loop {
        if let Some(line) = logged().into_iter().rfind(|line| line.contains(text)) {
            return line;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "no line with {text:?} in {:#?}", logged());
        std::thread::sleep(Duration::from_millis(5));
    }
}

type States = Mutex<HashMap<usize, InterruptStack>>;

/// What each CPU is doing when the next NMI comes; CPUs that are not here take none.
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
        // SAFETY: this is the NMI entry; what it interrupted waits for the lock.
        #[cfg(all(feature = "profiling", target_arch = "x86_64"))]
        on(cpu, || unsafe { crate::profiling::nmi_handler(state) });
        #[cfg(not(feature = "profiling"))]
        let _ = state;
    }
}

/// Counts that the timer was started with.
pub static TIMER_COUNTS: Mutex<Vec<u32>> = Mutex::new(Vec::new());

/// A page of host memory where the user has mapped `page`.
pub fn user_pages() -> &'static Mutex<HashMap<usize, usize>> {
    static PAGES: OnceLock<Mutex<HashMap<usize, usize>>> = OnceLock::new();
    PAGES.get_or_init(Mutex::default)
}

/// Memory of `bytes`, aligned to as much, for ever; its address.
pub fn aligned(bytes: usize) -> usize {
    let layout = Layout::from_size_align(bytes, bytes).unwrap();
    // SAFETY: the layout is not empty.
    unsafe { alloc_zeroed(layout) as usize }
}

/// Writes a word of such memory.
pub fn poke(address: usize, word: usize) {
    // SAFETY: the tests poke into what `aligned` gave them only.
    unsafe { (address as *mut usize).write_volatile(word) }
}

/// Maps a page of the user's.
pub fn map_user(page: usize) -> usize {
    let memory = aligned(4096);
    user_pages().lock().unwrap().insert(page, memory);
    memory
}

/// A counter of a CPU, as kprof's control text has it now.
#[cfg(feature = "profiling")]
pub fn counter(cpu: usize, name: &str) -> usize {
    let (mut text, key) = (String::new(), format!("cpu.{cpu}.{name} "));
    crate::profiling::PROFILER.write_status(&mut text).unwrap();
    text.lines().find_map(|line| line.strip_prefix(&key)).map_or(0, |value| value.parse().unwrap())
}

/// Waits until something is so, at most ten seconds.
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(120), "{what}; {:#?}", logged());
        std::thread::sleep(Duration::from_millis(1));
    }
}
