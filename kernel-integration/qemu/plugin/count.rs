//! Counts every executed instruction, by address and by calling context. Stage: capture.
//!
//! In: `count=flat` or `count=calls`, `functions=FILE`, `icount=1` if QEMU counts instructions, `parts=1` and what
//! [`super::window`] needs. Out: when QEMU ends, messages with all counters; before, one for each visit. Runs in:
//! QEMU's process, on the one thread of all vCPUs; when QEMU ends, on any thread, with no vCPU running beside it. No
//! counts are sent before the end, so a QEMU that is killed leaves none.

use super::Arguments;
use super::beside::Beside;
use super::block::{Block, Machine as _};
use super::callbacks::Callbacks;
use super::clock;
use super::functions::Functions;
use super::guest::Guest;
use super::halts::{Halts, Moment};
use super::output::{Output, message};
use super::probes::Probes;
use super::processor::Processor;
use super::qemu::{self, Id, Readings, Vcpu, executed};
use super::reset::{BOOT, MAX_CPUS};
use super::sample::watch_first_block;
use super::seen::Seen;
use super::send;
use super::shadow::Shadow;
use super::stops::Stops;
use super::tasks::Tasks;
use super::totals::Totals;
use super::translate::Blocks;
use super::window::{Watched, visit};
use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// When a vCPU is reset (INIT), QEMU counts the rest of its slice as executed. The two counts are compared at each
/// translation, where both can be read. What one faulting instruction changes is smaller than this.
const MIN_JUMP: u64 = 1000;

struct Counting {
    out: Output,
    processor: Processor,
    functions: Functions,
    blocks: Blocks,
    shadow: Option<Shadow>,
    has_clock: bool,
    halts: Halts,
    /// QEMU's count beyond that of executed instructions, and its jumps.
    ahead: u64,
    jumps: u64,
    jumped: u64,
    readings: Readings,
    watched: Watched,
    tasks: Tasks,
    beside: Option<Beside>,
    seen: Seen,
    stops: Option<Stops>,
}

/// The state; null before it is installed. Only one thread uses it at a time, see above.
static STATE: AtomicPtr<Counting> = AtomicPtr::new(std::ptr::null_mut());
static TRANSLATES: Mutex<()> = Mutex::new(());

extern "C" fn before_block(cpu: c_uint, block: *mut c_void) {
    // SAFETY: QEMU gives back what `on_translation` gave it. The state is used by this thread only.
    let (counting, block): (&mut Counting, &'static Block) =
        unsafe { (&mut *STATE.load(Relaxed), &*block.cast_const().cast()) };
    let Some(shadow) = &mut counting.shadow else { return };
    let cpu = qemu::number(cpu);
    if cpu >= MAX_CPUS {
        return;
    }
    counting.readings.before(cpu);
    let guest = Guest { cpu, readings: &counting.readings };
    let executed = executed();
    shadow.before(cpu, block, executed, &guest);
    if counting.has_clock {
        counting.halts.before(cpu, block, executed, &guest);
    }
    if counting.tasks.changing == Some(cpu)
        && let Some(task) = counting.tasks.changed(cpu, &guest)
    {
        shadow.window.set_task(cpu, task);
    }
    if let Some(stops) = &mut counting.stops {
        stops.before(cpu, || guest.vcpu(), shadow, &counting.out);
    }
    if let Some((beside, vcpu)) = counting.beside.as_mut().filter(|it| executed >= it.due).zip(guest.vcpu()) {
        beside.sample(cpu, (&vcpu, &mut counting.seen), executed, shadow, &counting.out);
    }
}

/// After [`before_block`], for blocks that begin at the first instruction of a probed function.
extern "C" fn at_probe(cpu: c_uint, _: *mut c_void) {
    // SAFETY: as in `before_block`.
    let counting = unsafe { &mut *STATE.load(Relaxed) };
    let Some(shadow) = &mut counting.shadow else { return };
    let cpu = qemu::number(cpu);
    let guest = Guest { cpu, readings: &counting.readings };
    shadow.probe(cpu, &guest, |probe, node, arguments| {
        let words = [&[u64::from(probe), u64::from(node), guest.time(executed())], &arguments[..]].concat();
        counting.out.send(message::HIT, cpu, &words);
    });
}

/// After [`before_block`], for blocks that begin at a watched address.
extern "C" fn at_watched(cpu: c_uint, block: *mut c_void) {
    // SAFETY: as in `before_block`.
    let (counting, block): (&mut Counting, &'static Block) =
        unsafe { (&mut *STATE.load(Relaxed), &*block.cast_const().cast()) };
    let Some(shadow) = &mut counting.shadow else { return };
    let cpu = qemu::number(cpu);
    let (watched, guest) = (&counting.watched, Guest { cpu, readings: &counting.readings });
    let was_open = shadow.window.is_open;
    shadow.window.at(block.start, watched);
    match (was_open, shadow.window.is_open) {
        (false, true) => counting.halts.begin(Moment::of(&guest, executed())),
        (true, false) => counting.halts.end(Moment::of(&guest, executed())),
        _ => {}
    }
    if Some(block.start) == watched.switch {
        shadow.window.set_task(cpu, counting.tasks.switch(cpu, &guest));
    }
    if Some(block.start) == watched.rename {
        counting.tasks.rename(cpu);
    }
    if Some(block.start) == watched.visits {
        let words = visit(shadow, cpu, &counting.functions, &guest);
        counting.out.send(message::VISIT, cpu, &words);
    }
}

impl Counting {
    fn watch_clock(&mut self) {
        // Wrapping: after a fault QEMU's count is the smaller one.
        let ahead = clock::counted().wrapping_sub(executed());
        let jump = ahead.wrapping_sub(self.ahead);
        if (MIN_JUMP..1 << 63).contains(&jump) {
            self.jumps += 1;
            self.jumped += jump;
        }
        self.ahead = ahead;
    }

    /// Looks for the kernel, and moves everything that its file has given an address.
    fn look(&mut self, vcpu: &Vcpu) {
        let Some(finder) = self.processor.look(vcpu, &mut self.seen) else { return };
        let (range, slide) = (finder.range(), finder.outcome.slide);
        if let Some(earlier) = finder.earlier {
            // After a reboot. What was counted has the names of the earlier place, so another one is an error.
            if earlier != slide {
                self.out.send(message::PLACE, 0, &finder.outcome.words());
            }
            return;
        }
        self.functions.slide(range, slide);
        self.watched.slide(slide);
        if let Some(shadow) = &mut self.shadow {
            shadow.probes.slide(range, slide);
            shadow.calls.entry = shadow.calls.entry.map(|entry| entry.wrapping_add(slide));
        }
        self.out.send(message::PLACE, 0, &finder.outcome.words());
    }
}

/// Before the machine's first block, and before [`before_block`].
extern "C" fn at_first_block(cpu: c_uint, _: *mut c_void) {
    // SAFETY: as in `before_block`.
    let counting = unsafe { &mut *STATE.load(Relaxed) };
    let cpu = qemu::number(cpu);
    // SAFETY: QEMU calls this on the thread of this vCPU, before a block.
    let Some(vcpu) = (unsafe { Vcpu::present(cpu) }) else { return };
    // A program may have code at the same address.
    if !counting.processor.is_user(&vcpu) && BOOT.executes_first(cpu) {
        counting.seen.restart();
    }
}

fn on_translation(block: *mut qemu::Block) {
    // With vCPUs in threads of their own (flat counts only) several may translate at the same time.
    let _alone = TRANSLATES.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: QEMU gives a block that is being translated.
    unsafe { watch_first_block(block, at_first_block) };
    // SAFETY: the state is used by this thread only.
    let counting = unsafe { &mut *STATE.load(Relaxed) };
    if counting.has_clock {
        counting.watch_clock();
    }
    // SAFETY: QEMU calls this on the thread of the vCPU that is about to run the block, outside of any block.
    let vcpu = unsafe { qemu::present() };
    let is_user = vcpu.as_ref().is_some_and(|vcpu| counting.processor.is_user(vcpu));
    vcpu.iter().for_each(|vcpu| counting.look(vcpu));
    let code = (counting.processor == Processor::X86, is_user);
    // SAFETY: QEMU gives a block that lives during this call.
    let Some(known) = (unsafe { counting.blocks.translate(block, code, &counting.functions) }) else { return };
    if let Some(shadow) = &counting.shadow {
        let data: *const Block = &raw const known.of.block;
        // SAFETY: the same, and the data lives as long as the process.
        unsafe { qemu::before(block, before_block, data.cast_mut().cast()) };
        if shadow.probes.has(known.of.block.start) {
            // SAFETY: the same. QEMU calls both before the block, in this order.
            unsafe { qemu::before(block, at_probe, std::ptr::null_mut()) };
        }
        if counting.watched.has(known.of.block.start) {
            // SAFETY: the same. QEMU calls both before the block, in this order.
            unsafe { qemu::before(block, at_watched, data.cast_mut().cast()) };
        }
    }
}

fn on_exit() {
    // SAFETY: no vCPU runs any more, or this is its thread.
    let counting = unsafe { &mut *STATE.load(Relaxed) };
    let executed = executed();
    let clock = counting.has_clock.then(clock::counted);
    if counting.has_clock {
        counting.watch_clock();
    }
    counting.blocks.all().for_each(|known| send::runs(&counting.out, known));
    let mut totals = Totals { executed, clock, ..Totals::default() };
    (totals.jumps, totals.jumped) = (counting.jumps, counting.jumped);
    totals.wrong_stack_pointers = counting.readings.wrong;
    if let Some(shadow) = &mut counting.shadow {
        shadow.settle(executed);
        for node in &shadow.tree.nodes {
            let words = [u64::from(node.parent), u64::from(node.function), node.instructions, node.calls];
            counting.out.send(message::CONTEXT, 0, &words);
        }
        for (cpu, node, instructions, task) in shadow.window.parts() {
            counting.out.send(message::PART, cpu, &[node, instructions, task]);
        }
        for call in shadow.calls.all() {
            let words = [call.number, call.own, call.interrupts, u64::from(call.has_returned)];
            counting.out.send(message::CALL, 0, &words);
        }
        shadow.calls.functions().for_each(|words| counting.out.send(message::HELD, 0, &words));
        send::probes(&counting.out, shadow);
        if counting.has_clock {
            // SAFETY: the clock may be read on any thread that is not within a block, and no block is run any more.
            counting.halts.end(Moment { ns: unsafe { clock::time(executed) }, executed });
            counting.halts.all().for_each(|(cpu, words)| counting.out.send(message::HALTED, cpu, &words));
        }
        totals.counts = shadow.counts;
        totals.too_deep = shadow.tree.too_deep;
    }
    // After a reboot, code at another address would have been translated, and looked at.
    if let Some(finder) = counting.seen.not_placed().filter(|finder| finder.earlier.is_none()) {
        counting.out.send(message::PLACE, 0, &finder.outcome.words());
    }
    counting.out.send(message::TOTALS, 0, &totals.words());
    counting.out.end();
}

/// Begins to count.
pub fn install(id: Id, processor: Processor, arguments: &Arguments, out: Output) -> Result<(), String> {
    let path = arguments.word("functions").ok_or("the plugin was given no functions")?;
    let functions = Functions::read(&std::fs::read(path).map_err(|error| format!("{path}: {error}"))?);
    let watched = Watched::new(|key| arguments.number(key));
    let mut shadow = (arguments.word("count") == Some("calls")).then(|| Shadow::new(MAX_CPUS));
    if let Some(shadow) = &mut shadow {
        if let Some(path) = arguments.word("probes") {
            let bytes = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
            shadow.probes = Probes::read(&bytes);
        }
        if arguments.number("syscalls").is_some() {
            shadow.calls.begin(arguments.number("entry"));
        }
        shadow.window.is_open = watched.from.is_none() && arguments.number("parts").is_some();
    }
    let mut halts = Halts::default();
    if watched.from.is_none() {
        halts.begin(Moment::default());
    }
    let state = Counting {
        out,
        processor,
        functions,
        blocks: Blocks::default(),
        shadow,
        has_clock: arguments.number("icount").is_some(),
        halts,
        ahead: 0,
        jumps: 0,
        jumped: 0,
        readings: Readings::default(),
        watched,
        tasks: Tasks::default(),
        beside: arguments.number("beside").map(Beside::new),
        seen: Seen::new(arguments)?,
        stops: arguments.number("stops").map(|_| Stops::new()).transpose()?,
    };
    STATE.store(Box::leak(Box::new(state)), Relaxed);
    qemu::watch_entries(id);
    Callbacks { vcpus: None, translate: on_translation, exit: on_exit }.register(id);
    Ok(())
}
