//! Where the rest of the kernel calls the profiler: one short function for each place.
//!
//! Without the feature `profiling` all of them are empty and leave nothing in the kernel.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
#[cfg(feature = "profiling")]
use core::ptr;
use core::sync::atomic::Ordering;

use kprof::{Context, ENABLED, Event, Image, Interrupted, NmiToken, Published, Way};

#[cfg(feature = "profiling")]
use super::places;
use super::{PROFILER, port};
use crate::cpu::entry::TrapFrame;
use crate::cpu::{self, CPUS, clock};
use crate::info::info;
use crate::lock::IrqLock;
use crate::memory::module;

/// How this kernel's CPUs are reached: `way=` on the command line.
pub fn way() -> Way {
    static WAY: spin::Once<Way> = spin::Once::new();
    *WAY.call_once(|| match info().option("way") {
        Some("ipi") => Way::Ipi,
        Some("published") => Way::Published,
        Some("self") => Way::Own,
        _ => Way::Nmi,
    })
}

/// Whether a CPU is to be set apart: not where each samples itself.
pub fn wants_sampler() -> bool {
    ENABLED && way() != Way::Own
}

/// On the sampler's CPU; does not return there.
pub fn run_sampler(cpu: usize) {
    PROFILER.run_sampler(cpu);
}

/// On each CPU that is to be sampled, once it has loaded its tables.
pub fn register(cpu: usize) {
    port::register(cpu);
    #[cfg(feature = "profiling")]
    if let Some(publisher) = PROFILER.publisher(cpu).filter(|_| way() == Way::Published) {
        CPUS[cpu].publisher.store(ptr::from_ref(publisher).cast_mut(), Ordering::Relaxed);
    }
    if ENABLED && way() == Way::Own {
        CPUS[cpu].own_tick_ns.store(0, Ordering::Relaxed);
    }
}

/// Calls the handler without a tick until it takes that for somebody else's NMI: the ticks that were coalesced so far
/// then excuse no further one. Interrupts off, nobody samples.
#[cfg(feature = "profiling")]
pub fn use_up_coalesced() {
    let frame = TrapFrame { cs: 8, ..TrapFrame::default() };
    // SAFETY: as in an NMI, nothing that the handler looks at changes under it: interrupts are off. Without a tick it
    // does not look at the frame.
    let token = unsafe { NmiToken::new() };
    while PROFILER.on_nmi(&token, &frame) == kprof::Outcome::Spurious {}
}

/// Numbers a tick of this CPU, whose NMI the CPU sends itself (see `cpu::alarm`).
#[cfg(feature = "profiling")]
pub fn raise_tick(cpu: usize) {
    PROFILER.raise_tick(cpu);
}

/// In the timer's handler: a CPU that samples itself does so here, and says when it will next.
pub fn on_timer(frame: &TrapFrame) {
    if ENABLED && way() == Way::Own {
        let at = frame.registers();
        // SAFETY: the timer's stub calls this with the registers it interrupted, interrupts off.
        let next_ns = PROFILER.on_timer(&unsafe { NmiToken::new() }, &at).next_ns;
        cpu::this().own_tick_ns.store(clock::now_ns() + next_ns, Ordering::Relaxed);
    }
}

/// While the boot itself is sampled: in the handler of the timer that there is then.
pub fn on_boot_timer(frame: &TrapFrame) {
    // SAFETY: the timer's stub calls this with the registers it interrupted, interrupts off.
    PROFILER.on_timer(&unsafe { NmiToken::new() }, &frame.registers());
}

/// When code was loaded: from here on it may run.
fn image(name: &str, text: (u64, u64), build_id: &[u8]) {
    PROFILER.image(&Image { name, load: text.0, text, build_id });
}

/// The contexts that live now, and their names.
static CONTEXTS: IrqLock<BTreeMap<u64, String>> = IrqLock::new(BTreeMap::new());

/// While the boot itself is sampled: before there is a heap to keep a name in.
pub fn name_boot(id: u64) {
    PROFILER.context_name(id, "boot");
}

/// When a context is made.
pub fn name_context(id: u64, name: &str) {
    if ENABLED {
        CONTEXTS.lock().insert(id, name.to_owned());
        PROFILER.context_name(id, name);
    }
}

/// When a context ends, or becomes another one.
pub fn forget_context(id: u64) {
    if ENABLED {
        CONTEXTS.lock().remove(&id);
    }
}

/// When a reader claims the streams: it may never have heard of what was told before it came.
pub fn tell_again() {
    CONTEXTS.lock().iter().for_each(|(id, name)| PROFILER.context_name(*id, name));
    tell_of_module();
}

/// Names the loaded module, if there is one.
pub fn tell_of_module() {
    if ENABLED && let Some((text, build_id)) = module::image() {
        image("module", text, build_id);
    }
}

/// In the scheduler.
pub fn count_context_switch() {
    PROFILER.count(Event::ContextSwitch);
}

/// In the page-fault handler.
pub fn count_page_fault() {
    PROFILER.count(Event::PageFault);
}

/// In the interrupt handler.
pub fn count_interrupt() {
    PROFILER.count(Event::Interrupt);
}

/// When the kernel panics, the other CPUs stopped: the last samples of every CPU go to the serial log.
pub fn on_panic() {
    // A failed write is the log's; there is nothing else to say it to.
    let _ = PROFILER.export_last(&mut crate::log::Line, SAMPLES_AFTER_PANIC);
}

/// How many samples of each CPU the panic hook writes.
const SAMPLES_AFTER_PANIC: usize = 20;

/// Publishes a place, or with a context that one, and gives the place before. Interrupts are off.
#[inline(always)]
pub(super) fn publish(place: Published, context: Option<Context>) -> Published {
    #[cfg(feature = "profiling")]
    // SAFETY: null, or what `register` has put there, which lives for ever. (The CPU is asked for each time: it is
    // another one where an entry is left, or a switch comes back.)
    if let Some(publisher) = unsafe { cpu::this().publisher.load(Ordering::Relaxed).as_ref() } {
        let before = match context {
            None => publisher.publish(place),
            Some(context) => publisher.publish_context(context),
        };
        if places::COUNTING.load(Ordering::Relaxed) {
            // Here, and not in there: everywhere as many instructions behind the publication.
            places::count(clock::tsc(), place, context);
        }
        return before;
    }
    let _ = (place, context);
    Published::THREAD
}

/// At every entry from user code or by an interrupt, first thing, interrupts off. Gives what the CPU published before.
#[inline(always)]
pub fn enter(frame: &TrapFrame) -> Published {
    publish(Published::entry(frame.border()), None)
}

/// When the entry is left, last thing, interrupts off.
#[inline(always)]
pub fn leave(frame: &TrapFrame, before: Published) {
    publish(if frame.is_user() { Published::user(frame.border()) } else { before }, None);
}

/// Before the scheduler switches to another context, or where a program becomes another one, interrupts off.
#[inline]
pub fn switch_to(context: u64, idle: bool) -> Published {
    publish(Published::THREAD, Some(Context { id: context, idle }))
}

/// When a context runs again, interrupts off.
#[inline]
pub fn publish_again(place: Published) {
    publish(place, None);
}
