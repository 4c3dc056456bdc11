//! The functions with which the rest of the kernel calls the profiler: one short function for each place.
//!
//! Without the feature `profiling` all of them are empty and add no code to the kernel.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
#[cfg(feature = "profiling")]
use core::ptr;
use core::sync::atomic::Ordering;

use kprof::{ENABLED, Image, Interrupted, NmiToken, Published, Task, Trigger};
use kprof_events::Event;

#[cfg(feature = "profiling")]
use super::places;
use super::{EVENTS, PROFILER, points, port};
use crate::cpu::entry::TrapFrame;
use crate::cpu::{self, CPUS, clock};
use crate::info::info;
use crate::lock::IrqLock;
use crate::memory::module;

/// The trigger, from `trigger=` on the command line.
pub fn trigger() -> Trigger {
    static TRIGGER: spin::Once<Trigger> = spin::Once::new();
    *TRIGGER.call_once(|| match info().option("trigger") {
        Some("ipi") => Trigger::Ipi,
        Some("published") => Trigger::Published,
        Some("timer") => Trigger::Timer,
        _ => Trigger::Nmi,
    })
}

/// Whether a sampler CPU is needed. It is not if each CPU samples itself.
pub fn wants_sampler() -> bool {
    ENABLED && trigger() != Trigger::Timer
}

/// Whether the boot is sampled.
pub fn samples_boot() -> bool {
    wants_sampler() && info().option("boot-profile").is_some()
}

/// Called on the sampler CPU. It does not return there. It has no ring for samples, but its interrupts and what it
/// calls hit points as on every other CPU. If the boot was sampled, it has been registered for that.
pub fn run_sampler(cpu: usize) {
    if ENABLED && !samples_boot() {
        points::register(cpu);
    }
    PROFILER.run_sampler(cpu);
}

/// Called on each CPU that will be sampled, after it has loaded its tables.
pub fn register(cpu: usize) {
    port::register(cpu);
    points::register(cpu);
    #[cfg(feature = "profiling")]
    if let Some(publisher) = PROFILER.publisher(cpu).filter(|_| trigger() == Trigger::Published) {
        CPUS[cpu].publisher.store(ptr::from_ref(publisher).cast_mut(), Ordering::Relaxed);
    }
    if ENABLED && trigger() == Trigger::Timer {
        CPUS[cpu].timer_interval_ns.store(0, Ordering::Relaxed);
    }
}

/// Calls the handler without a tick until the NMI counts as foreign. For each coalesced tick one NMI without a tick
/// counts as spurious; after this call none of these is left. Interrupts must be off, and sampling must be stopped.
#[cfg(feature = "profiling")]
pub fn use_up_coalesced() {
    let frame = TrapFrame { cs: 8, ..TrapFrame::default() };
    // SAFETY: as in an NMI, the data that the handler reads does not change, because interrupts are off. Without a tick
    // it does not read the frame.
    let token = unsafe { NmiToken::new() };
    while PROFILER.on_nmi(&token, &frame) == kprof::Outcome::Spurious {}
}

/// Raises a tick of this CPU. The CPU sends the NMI for it to itself (see `cpu::alarm`).
#[cfg(feature = "profiling")]
pub fn raise_tick(cpu: usize) {
    PROFILER.raise_tick(cpu);
}

/// Called in the timer's handler. With the trigger `timer` the CPU samples itself here, and stores when it will sample
/// next.
pub fn on_timer(frame: &TrapFrame) {
    if ENABLED && trigger() == Trigger::Timer {
        let at = frame.registers();
        // SAFETY: the timer's stub calls this with the registers it interrupted, interrupts off.
        let next_ns = PROFILER.on_timer(&unsafe { NmiToken::new() }, &at).next_ns;
        cpu::this().timer_interval_ns.store(clock::now_ns() + next_ns, Ordering::Relaxed);
    }
}

/// Called in the handler of the boot timer, while the boot itself is sampled.
pub fn on_boot_timer(frame: &TrapFrame) {
    // SAFETY: the timer's stub calls this with the registers it interrupted, interrupts off.
    PROFILER.on_timer(&unsafe { NmiToken::new() }, &frame.registers());
}

/// Called after code was loaded, before it runs.
fn image(name: &str, text: (u64, u64), build_id: &[u8]) {
    PROFILER.image(&Image { name, load: text.0, text, build_id });
}

/// The tasks that exist now, and their names.
static TASKS: IrqLock<BTreeMap<u64, String>> = IrqLock::new(BTreeMap::new());

/// Names the boot task while the boot itself is sampled. There is no heap yet to store the name.
pub fn name_boot(id: u64) {
    PROFILER.task_name(id, "boot");
}

/// Called where a phase of the boot begins, if the boot is sampled.
pub fn mark_phase(name: &str) {
    PROFILER.mark(name);
}

/// Called when a task is created.
pub fn name_task(id: u64, name: &str) {
    if ENABLED {
        TASKS.lock().insert(id, name.to_owned());
        PROFILER.task_name(id, name);
    }
}

/// Called when a task ends, or becomes another task.
pub fn forget_task(id: u64) {
    if ENABLED {
        TASKS.lock().remove(&id);
    }
}

/// Called when a reader claims the streams, or begins to read copies: sends all names again, because it may not have
/// the earlier ones.
pub fn tell_again() {
    TASKS.lock().iter().for_each(|(id, name)| PROFILER.task_name(*id, name));
    tell_of_module();
}

/// Names the loaded module, if there is one.
pub fn tell_of_module() {
    if ENABLED && let Some((text, build_id)) = module::image() {
        image("module", text, build_id);
    }
}

/// Called in the scheduler.
pub fn count_context_switch() {
    EVENTS.count(Event::ContextSwitch);
}

/// Called in the page-fault handler.
pub fn count_page_fault() {
    EVENTS.count(Event::PageFault);
}

/// Called in the interrupt handler.
pub fn count_interrupt() {
    EVENTS.count(Event::Interrupt);
}

/// Called when the kernel panics, after the other CPUs were stopped. The last samples of every CPU go to the serial
/// log.
pub fn on_panic() {
    // If a write to the log fails, there is no other place to report it.
    let _ = PROFILER.export_last(&mut crate::log::Line, SAMPLES_AFTER_PANIC);
}

/// How many samples of each CPU the panic handler writes.
const SAMPLES_AFTER_PANIC: usize = 20;

/// Publishes a place and, if one is given, a task. Returns the place that was published before. Interrupts are off.
#[inline(always)]
pub(super) fn publish(place: Published, task: Option<Task>) -> Published {
    #[cfg(feature = "profiling")]
    // SAFETY: the pointer is null, or `register` has set it to a static. (The CPU is determined in each call: when an
    // entry is left or a switch returns, the thread may be on another CPU.)
    if let Some(publisher) = unsafe { cpu::this().publisher.load(Ordering::Relaxed).as_ref() } {
        let before = match task {
            None => publisher.publish(place),
            Some(task) => publisher.publish_task(task),
        };
        if places::COUNTING.load(Ordering::Relaxed) {
            // The clock is read here and not inside `count`, so that it is always the same number of instructions after
            // the publication.
            places::count(clock::tsc(), place, task);
        }
        return before;
    }
    let _ = (place, task);
    Published::THREAD
}

/// Called first at every entry from user code or by an interrupt, with interrupts off. Returns what the CPU published
/// before.
#[inline(always)]
pub fn enter(frame: &TrapFrame) -> Published {
    publish(Published::entry(frame.caller_entry_frame()), None)
}

/// Called last when the entry is left, with interrupts off.
#[inline(always)]
pub fn leave(frame: &TrapFrame, before: Published) {
    publish(if frame.is_user() { Published::user(frame.caller_entry_frame()) } else { before }, None);
}

/// Called before the scheduler switches to another task, and when exec makes the thread a new task, with interrupts
/// off.
#[inline]
pub fn switch_to(task: u64, idle: bool) -> Published {
    publish(Published::THREAD, Some(Task { id: task, idle }))
}

/// Called when a task runs again, with interrupts off.
#[inline]
pub fn publish_again(place: Published) {
    publish(place, None);
}
