//! Takes samples of each vCPU. Stage: capture.
//!
//! In: `seed=N`, and `hz=N` (by time) or `every=N` (by executed instructions); `cpus=N:N`. Out: messages. Runs in:
//! QEMU's process. By time, a thread asks QEMU to call a function on the vCPU's own thread, so nothing runs between two
//! samples; by instructions, a function is called before each translated block. If the tool has gone, no more samples
//! are taken.

use super::Arguments;
use super::callbacks::Callbacks;
use super::output::{Output, message};
use super::processor::{Processor, Walks};
use super::qemu::{self, Id, OnBlock, Vcpu};
use super::reset::{BOOT, MAX_CPUS};
use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How often messages are passed on.
const FLUSH: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Cpu {
    /// Whether it is sampled: `cpus=N:N` names those that are.
    is_chosen: AtomicBool,
    is_up: AtomicBool,
    is_idle: AtomicBool,
    is_pending: AtomicBool,
    instructions: AtomicU64,
    /// The number of instructions at which the next sample is due.
    due: AtomicU64,
    random: AtomicU64,
}

struct Plugin {
    start: Instant,
    /// The average interval: nanoseconds or instructions.
    period: u64,
    by_time: bool,
    out: Output,
    processor: Processor,
    walks: Mutex<Walks>,
    cpus: Box<[Cpu]>,
}

static PLUGIN: OnceLock<Plugin> = OnceLock::new();
/// Whether the machine runs. Before that, QEMU still makes it: a vCPU must not be asked to read its memory.
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);

impl Plugin {
    fn sample(&self, cpu: usize, vcpu: &Vcpu, time: u64) {
        let mut walks = self.walks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(finder) = self.processor.look(vcpu, &mut walks.seen) {
            self.out.send(message::PLACE, cpu, &finder.outcome.words());
        }
        let words = self.processor.words(vcpu, time, &mut walks);
        drop(walks);
        self.out.send(message::SAMPLE, cpu, &words);
    }

    fn interval(&self, cpu: usize) -> u64 {
        let mut state = self.cpus[cpu].random.load(Relaxed);
        let interval = interval(&mut state, self.period);
        self.cpus[cpu].random.store(state, Relaxed);
        interval
    }

    /// Sends a tick to each vCPU, at random intervals, until QEMU ends.
    fn run_clock(&'static self) {
        let mut next = Duration::ZERO;
        let mut flushed = Duration::ZERO;
        loop {
            next += Duration::from_nanos(self.interval(0));
            std::thread::sleep(next.saturating_sub(self.start.elapsed()));
            // After a pause of the host, ticks are not made up for.
            next = next.max(self.start.elapsed().saturating_sub(Duration::from_nanos(self.period)));
            let time = self.start.elapsed();
            if !HAS_BEGUN.load(Relaxed) {
                continue;
            }
            let is_sampled = |cpu: &Cpu| cpu.is_up.load(Relaxed) && cpu.is_chosen.load(Relaxed);
            for (number, cpu) in self.cpus.iter().enumerate().filter(|(_, cpu)| is_sampled(cpu)) {
                if cpu.is_pending.load(Relaxed) {
                    self.out.send(message::COALESCED, number, &[]);
                } else if cpu.is_idle.load(Relaxed) {
                    self.out.send(message::IDLE, number, &[time.as_nanos() as u64]);
                } else {
                    cpu.is_pending.store(true, Relaxed);
                    if !qemu::ask(number, take) {
                        cpu.is_pending.store(false, Relaxed);
                    }
                }
            }
            if time > flushed + FLUSH {
                self.out.flush();
                flushed = time;
            }
        }
    }
}

/// The next interval: uniform between half and one and a half of the average.
pub fn interval(state: &mut u64, period: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    period / 2 + (mixed ^ mixed >> 31) % period.max(1)
}

/// A tick of the clock, on the thread of its vCPU.
fn take(vcpu: &Vcpu, cpu: usize) {
    let Some((plugin, state)) = self::vcpu(cpu) else { return };
    plugin.sample(cpu, vcpu, plugin.start.elapsed().as_nanos() as u64);
    state.is_pending.store(false, Relaxed);
}

extern "C" fn before_block(cpu: c_uint, instructions: *mut c_void) {
    let cpu = qemu::number(cpu);
    let Some((plugin, state)) = vcpu(cpu) else { return };
    // Only this vCPU's thread changes them.
    let executed = state.instructions.load(Relaxed) + instructions as u64;
    state.instructions.store(executed, Relaxed);
    if executed >= state.due.load(Relaxed) {
        state.due.store(executed + plugin.interval(cpu), Relaxed);
        // SAFETY: QEMU calls this on the thread of this vCPU, before a block.
        if let Some(vcpu) = unsafe { Vcpu::present(cpu) } {
            plugin.sample(cpu, &vcpu, executed);
        }
    }
}

/// Before the machine's first block. What was found out about the kernel's code is forgotten after a reboot.
extern "C" fn at_first_block(cpu: c_uint, _: *mut c_void) {
    let (cpu, Some(plugin)) = (qemu::number(cpu), PLUGIN.get()) else { return };
    // SAFETY: QEMU calls this on the thread of this vCPU, before a block.
    let Some(vcpu) = (unsafe { Vcpu::present(cpu) }) else { return };
    let mut walks = plugin.walks.lock().unwrap_or_else(PoisonError::into_inner);
    // A program may have code at the same address.
    if plugin.processor.is_user(&vcpu) || !BOOT.executes_first(cpu) {
        return;
    }
    if let Some(finder) = walks.not_placed() {
        plugin.out.send(message::PLACE, cpu, &finder.outcome.words());
    }
    walks.restart();
    plugin.out.send(message::RESET, cpu, &[]);
}

/// Has QEMU call this function before each execution of the block, if it is the machine's first one.
///
/// # Safety
/// QEMU has given the block to be translated.
pub unsafe fn watch_first_block(block: *mut qemu::Block, call: OnBlock) {
    // SAFETY: the caller's block is being translated, and the function lives as long as the process.
    unsafe {
        if BOOT.is_first(qemu::qemu_plugin_tb_vaddr(block)) {
            qemu::before(block, call, std::ptr::null_mut());
        }
    }
}

fn on_translation(block: *mut qemu::Block) {
    // SAFETY: QEMU gives a block that lives during this call, and takes any word as data.
    unsafe {
        watch_first_block(block, at_first_block);
        let instructions = qemu::qemu_plugin_tb_n_insns(block);
        qemu::before(block, before_block, instructions as *mut c_void);
    }
}

fn on_translation_by_time(block: *mut qemu::Block) {
    HAS_BEGUN.store(true, Relaxed);
    // SAFETY: QEMU gives a block that is being translated.
    unsafe { watch_first_block(block, at_first_block) };
    qemu::watch_ticks(block);
}

/// The plugin and its state of a vCPU; `None` beyond the most that the machine can have.
fn vcpu(cpu: usize) -> Option<(&'static Plugin, &'static Cpu)> {
    let plugin = PLUGIN.get()?;
    Some((plugin, plugin.cpus.get(cpu)?))
}

fn on_init(cpu: usize) {
    if let Some((plugin, state)) = vcpu(cpu) {
        let first = if state.is_chosen.load(Relaxed) { plugin.interval(cpu) } else { u64::MAX };
        state.due.store(first, Relaxed);
        state.is_up.store(true, Relaxed);
    }
}

fn on_idle(cpu: usize) {
    if let Some((_, state)) = vcpu(cpu) {
        state.is_idle.store(true, Relaxed);
    }
}

fn on_resume(cpu: usize) {
    if let Some((_, state)) = vcpu(cpu) {
        state.is_idle.store(false, Relaxed);
    }
}

fn on_exit() {
    let Some(plugin) = PLUGIN.get() else { return };
    for (number, _) in plugin.cpus.iter().enumerate().filter(|(_, cpu)| cpu.is_pending.load(Relaxed)) {
        plugin.out.send(message::PENDING, number, &[]);
    }
    let walks = plugin.walks.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(finder) = walks.not_placed() {
        plugin.out.send(message::PLACE, 0, &finder.outcome.words());
    }
    plugin.out.end();
}

/// Begins to sample.
pub fn install(
    id: Id,
    (processor, max_vcpus): (Processor, usize),
    arguments: &Arguments,
    out: Output,
) -> Result<(), String> {
    let (period, by_time) = match (arguments.number("hz"), arguments.number("every")) {
        (Some(hz), _) => ((1_000_000_000 / hz).max(1), true),
        (None, Some(every)) => (every, false),
        (None, None) => return Err("the plugin was given neither hz nor every".to_owned()),
    };
    let cpus = (0..max_vcpus.clamp(1, MAX_CPUS)).map(|_| Cpu::default()).collect();
    let walks = Mutex::new(Walks::new(arguments)?);
    let start = Instant::now();
    let plugin = PLUGIN.get_or_init(|| Plugin { start, period, by_time, out, processor, walks, cpus });
    let seed = arguments.word("seed").and_then(|text| text.parse().ok()).unwrap_or(0_u64);
    let chosen: Option<Vec<u64>> =
        arguments.word("cpus").map(|list| list.split(':').filter_map(|number| number.parse().ok()).collect());
    for (cpu, number) in plugin.cpus.iter().zip(0_u64..) {
        cpu.is_chosen.store(chosen.as_ref().is_none_or(|chosen| chosen.contains(&number)), Relaxed);
        cpu.random.store(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ number << 56 ^ number >> 8, Relaxed);
    }
    let translate = if plugin.by_time { on_translation_by_time } else { on_translation };
    Callbacks { vcpus: Some([on_init, on_idle, on_resume]), translate, exit: on_exit }.register(id);
    if plugin.by_time {
        std::thread::spawn(|| PLUGIN.get().map(Plugin::run_clock));
    }
    Ok(())
}
