//! Counts every executed instruction, by address and by calling context. Stage: capture.
//!
//! In: `count=flat` or `count=calls`, `functions=FILE`, `icount=1` if QEMU counts instructions, `parts=1` and what
//! [`super::window`] needs. Out: when QEMU ends, messages with all counters; before, one for each visit. Runs in:
//! QEMU's process, on the one thread of all vCPUs; when QEMU ends, on any thread, with no vCPU running beside it. No
//! counts are sent before the end, so a QEMU that is killed leaves none.

use super::Arguments;
use super::beside::Beside;
use super::block::{Block, Machine as _};
use super::functions::Functions;
use super::guest::{Guest, check};
use super::halts::{Halts, Moment};
use super::output::{Output, message};
use super::probes::Probes;
use super::qemu::{self, Id, Vcpu};
use super::reset::BOOT;
use super::sample::watch_first_block;
use super::seen::Seen;
use super::send;
use super::shadow::Shadow;
use super::translate::{Blocks, EXECUTED};
use super::stops::Stops;
use super::tasks::Tasks;
use super::window::{Watched, visit};
use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// The most vCPUs.
const MAX_CPUS: usize = 256;
/// How many blocks run between two checks of the stack pointer's place.
const CHECK: u64 = 1 << 16;

/// When a vCPU is reset (INIT), QEMU counts the rest of its slice as executed. The two counts are compared at each
/// translation, where both can be read. What one faulting instruction changes is smaller than this.
const MIN_JUMP: u64 = 1000;

/// What is sent at the end, a word each.
#[derive(Debug, Default)]
pub struct Totals {
    /// Instructions that have begun, counted one by one.
    pub executed: u64,
    /// QEMU's own count; [`u64::MAX`] if it does not count.
    pub clock: u64,
    /// How often, and by how much, QEMU's count has jumped: see [`MIN_JUMP`].
    pub jumps: u64,
    pub jumped: u64,
    pub interrupts: u64,
    pub faults: u64,
    pub switches: u64,
    pub unexplained: u64,
    pub too_deep: u64,
    /// How often the fast way to the stack pointer gave another value than QEMU's own.
    pub wrong_stack_pointers: u64,
}

struct Counting {
    out: Output,
    functions: Functions,
    blocks: Blocks,
    shadow: Option<Shadow>,
    has_clock: bool,
    halts: Halts,
    /// QEMU's count beyond that of executed instructions, and its jumps.
    ahead: u64,
    jumps: u64,
    jumped: u64,
    /// Where each vCPU's stack pointer is; null if that is not known yet.
    places: [*const u64; MAX_CPUS],
    until_check: u64,
    wrong_stack_pointers: u64,
    watched: Watched,
    tasks: Tasks,
    beside: Option<Beside>,
    seen: Seen,
    stops: Option<Stops>,
}

/// The state; null before it is installed. Only one thread uses it at a time, see above.
static STATE: AtomicPtr<Counting> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn before_block(cpu: c_uint, block: *mut c_void) {
    // SAFETY: QEMU gives back what `on_translation` gave it. The state is used by this thread only.
    let (counting, block): (&mut Counting, &'static Block) =
        unsafe { (&mut *STATE.load(Relaxed), &*block.cast_const().cast()) };
    let Some(shadow) = &mut counting.shadow else { return };
    let Some(place) = counting.places.get_mut(cpu as usize) else { return };
    let mut guest = Guest { cpu, place: *place };
    counting.until_check -= 1;
    if counting.until_check == 0 {
        counting.until_check = CHECK;
    }
    if counting.until_check == CHECK || place.is_null() {
        counting.wrong_stack_pointers += check(&mut guest);
        *place = guest.place;
    }
    let executed = EXECUTED.load(Relaxed);
    shadow.before(cpu as usize, block, executed, &guest);
    if counting.has_clock {
        counting.halts.before(cpu as usize, block, executed, &guest);
    }
    if counting.tasks.changing == Some(cpu as usize)
        && let Some(task) = counting.tasks.changed(cpu as usize, &guest)
    {
        shadow.window.set_task(cpu as usize, task);
    }
    if let Some(stops) = &mut counting.stops {
        stops.before(cpu as usize, || guest.vcpu(), shadow, &counting.out);
    }
    if let Some((beside, vcpu)) = counting.beside.as_mut().filter(|it| executed >= it.due).zip(guest.vcpu()) {
        beside.sample(cpu as usize, (&vcpu, &mut counting.seen), executed, shadow, &counting.out);
    }
}

/// After [`before_block`], for blocks that begin at the first instruction of a probed function.
extern "C" fn at_probe(cpu: c_uint, _: *mut c_void) {
    // SAFETY: as in `before_block`.
    let counting = unsafe { &mut *STATE.load(Relaxed) };
    let (Some(shadow), Some(place)) = (&mut counting.shadow, counting.places.get(cpu as usize)) else { return };
    let guest = Guest { cpu, place: *place };
    shadow.probe(cpu as usize, &guest, |probe, node, arguments| {
        let words = [&[u64::from(probe), u64::from(node), guest.time(EXECUTED.load(Relaxed))], &arguments[..]].concat();
        counting.out.send(message::HIT, cpu as usize, &words);
    });
}

/// After [`before_block`], for blocks that begin at a watched address.
extern "C" fn at_watched(cpu: c_uint, block: *mut c_void) {
    // SAFETY: as in `before_block`.
    let (counting, block): (&mut Counting, &'static Block) =
        unsafe { (&mut *STATE.load(Relaxed), &*block.cast_const().cast()) };
    let (Some(shadow), Some(place)) = (&mut counting.shadow, counting.places.get(cpu as usize)) else { return };
    let (watched, guest) = (&counting.watched, Guest { cpu, place: *place });
    let was_open = shadow.window.is_open;
    shadow.window.at(block.start, watched);
    match (was_open, shadow.window.is_open) {
        (false, true) => counting.halts.begin(Moment::of(&guest, EXECUTED.load(Relaxed))),
        (true, false) => counting.halts.end(Moment::of(&guest, EXECUTED.load(Relaxed))),
        _ => {}
    }
    if Some(block.start) == watched.switch {
        shadow.window.set_task(cpu as usize, counting.tasks.switch(cpu as usize, &guest));
    }
    if Some(block.start) == watched.rename {
        counting.tasks.rename(cpu as usize);
    }
    if Some(block.start) == watched.visits {
        let words = visit(shadow, cpu as usize, &counting.functions, &guest);
        counting.out.send(message::VISIT, cpu as usize, &words);
    }
}

impl Counting {
    fn watch_clock(&mut self) {
        // Wrapping: after a fault QEMU's count is the smaller one.
        let ahead = qemu::counted().wrapping_sub(EXECUTED.load(Relaxed));
        let jump = ahead.wrapping_sub(self.ahead);
        if (MIN_JUMP..1 << 63).contains(&jump) {
            self.jumps += 1;
            self.jumped += jump;
        }
        self.ahead = ahead;
    }

    /// Looks for the kernel, and moves everything that its file has given an address.
    fn look(&mut self, vcpu: &Vcpu) {
        let Some(finder) = self.seen.look(vcpu) else { return };
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
    // SAFETY: QEMU calls this on the thread of this vCPU, before a block.
    let Some(vcpu) = (unsafe { Vcpu::present(cpu) }) else { return };
    // A program may have code at the same address.
    if vcpu.registers().cs & 3 == 0 && BOOT.executes_first(cpu as usize) {
        counting.seen.restart();
    }
}

extern "C" fn on_translation(_: Id, block: *mut qemu::Block) {
    // SAFETY: QEMU gives a block that is being translated.
    unsafe { watch_first_block(block, at_first_block) };
    // SAFETY: the state is used by this thread only.
    let counting = unsafe { &mut *STATE.load(Relaxed) };
    if counting.has_clock {
        counting.watch_clock();
    }
    // SAFETY: QEMU calls this on the thread of the vCPU that is about to run the block, outside of any block.
    let vcpu = unsafe { qemu::present() };
    let is_user = vcpu.as_ref().is_some_and(|vcpu| vcpu.registers().cs & 3 == 3);
    vcpu.iter().for_each(|vcpu| counting.look(vcpu));
    // SAFETY: QEMU gives a block that lives during this call.
    let Some(known) = (unsafe { counting.blocks.translate(block, is_user, &counting.functions) }) else { return };
    if let Some(shadow) = &counting.shadow {
        let data: *const Block = &raw const known.block;
        // SAFETY: the same, and the data lives as long as the process.
        unsafe { qemu::qemu_plugin_register_vcpu_tb_exec_cb(block, before_block, 0, data.cast_mut().cast()) };
        if shadow.probes.has(known.block.start) {
            // SAFETY: the same. QEMU calls both before the block, in this order.
            unsafe { qemu::qemu_plugin_register_vcpu_tb_exec_cb(block, at_probe, 0, std::ptr::null_mut()) };
        }
        if counting.watched.has(known.block.start) {
            // SAFETY: the same. QEMU calls both before the block, in this order.
            unsafe { qemu::qemu_plugin_register_vcpu_tb_exec_cb(block, at_watched, 0, data.cast_mut().cast()) };
        }
    }
}

extern "C" fn on_exit(_: Id, _: *mut c_void) {
    // SAFETY: no vCPU runs any more, or this is its thread.
    let counting = unsafe { &mut *STATE.load(Relaxed) };
    let executed = EXECUTED.load(Relaxed);
    let clock = if counting.has_clock { qemu::counted() } else { u64::MAX };
    if counting.has_clock {
        counting.watch_clock();
    }
    counting.blocks.all().for_each(|known| send::runs(&counting.out, known));
    let mut totals = Totals { executed, clock, ..Totals::default() };
    (totals.jumps, totals.jumped) = (counting.jumps, counting.jumped);
    totals.wrong_stack_pointers = counting.wrong_stack_pointers;
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
            counting.halts.end(Moment { ns: unsafe { qemu::time(executed) }, executed });
            counting.halts.all().for_each(|(cpu, words)| counting.out.send(message::HALTED, cpu, &words));
        }
        let counts = shadow.counts;
        (totals.interrupts, totals.faults) = (counts.interrupts, counts.faults);
        (totals.switches, totals.unexplained) = (counts.switches, counts.unexplained);
        totals.too_deep = shadow.tree.too_deep;
    }
    let Totals { executed, clock, jumps, jumped, interrupts, faults, switches, unexplained, .. } = totals;
    let first = [executed, clock, jumps, jumped, interrupts, faults, switches, unexplained];
    let words = [&first[..], &[totals.too_deep, totals.wrong_stack_pointers]].concat();
    // After a reboot, code at another address would have been translated, and looked at.
    if let Some(finder) = counting.seen.not_placed().filter(|finder| finder.earlier.is_none()) {
        counting.out.send(message::PLACE, 0, &finder.outcome.words());
    }
    counting.out.send(message::TOTALS, 0, &words);
    counting.out.end();
}

/// Begins to count.
pub fn install(id: Id, arguments: &Arguments, out: Output) -> Result<(), String> {
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
        functions,
        blocks: Blocks::default(),
        shadow,
        has_clock: arguments.number("icount").is_some(),
        halts,
        ahead: 0,
        jumps: 0,
        jumped: 0,
        places: [std::ptr::null(); MAX_CPUS],
        until_check: CHECK,
        wrong_stack_pointers: 0,
        watched,
        tasks: Tasks::default(),
        beside: arguments.number("beside").map(Beside::new),
        seen: Seen::new(arguments)?,
        stops: arguments.number("stops").map(|_| Stops::new()).transpose()?,
    };
    STATE.store(Box::leak(Box::new(state)), Relaxed);
    // SAFETY: the functions have the types that the interface asks for, and live as long as the process.
    unsafe {
        qemu::qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
        qemu::qemu_plugin_register_atexit_cb(id, on_exit, std::ptr::null_mut());
    }
    Ok(())
}
