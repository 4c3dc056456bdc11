//! The steps of the check on this CPU, in the order in which errors must be repaired.
//!
//! In: the kernel, the machine. Out: the first thing that is wrong. Runs in: ordinary code. The machine is used only
//! through [`Machine`], so that tests can replace it by one that has each kind of error.

use super::vectors::Vectors;
use super::{CheckError, MIN_STACK_BYTES};
use crate::arch::gate::Gate;
use crate::arch::{tables, timestamp};
use crate::clock::ticks_to_ns;
use crate::config::{Config, Trigger};
use crate::kernel::{CompiledEntry, Kernel};
use crate::live::State;
use crate::sampler;
use crate::shared::{Instance, Shared};
use crate::unwind::Text;

/// A sleep of 1 ms may return early at most this many times. A sleep that does not sleep returns thousands of times.
const MAX_RETURNS: usize = 200;
/// The shortest of at least this many sleeps counts, because a virtual CPU may be descheduled during a sleep.
pub(super) const SLEEPS: usize = 10;
/// If all of them were too long, it goes on for this long: on a busy host most sleeps of a virtual CPU are.
pub(super) const SLEEPS_MS: u64 = 500;
const MILLISECOND_NS: u64 = 1_000_000;
/// The sampler CPU waits this many sleeps of 1 ms for the other CPUs to register, and to take a tick.
const WAITS: usize = 1000;

/// What the check reads from the machine.
pub(super) trait Machine {
    /// The gate of a vector in this CPU's interrupt descriptor table.
    fn gate(&self, vector: u8) -> Option<Gate>;
    /// The end address of an interrupt stack of this CPU.
    fn interrupt_stack(&self, ist: u8) -> Option<u64>;
    /// The vector of NMIs; `None` if the processor has no table of entries.
    fn nmi_vector(&self) -> Option<u8>;
    /// The time stamp counter.
    fn ticks(&self) -> u64;
    /// Eight bytes of kernel code.
    ///
    /// # Safety
    /// The first and the last of them are kernel text by [`Config::text`] or [`Kernel::is_text`].
    unsafe fn code(&self, address: u64) -> u64;
}

/// The machine that this runs on.
struct Here;

impl Machine for Here {
    fn gate(&self, vector: u8) -> Option<Gate> {
        tables::gate(vector)
    }

    fn interrupt_stack(&self, ist: u8) -> Option<u64> {
        tables::interrupt_stack(ist)
    }

    fn nmi_vector(&self) -> Option<u8> {
        tables::NMI_VECTOR
    }

    fn ticks(&self) -> u64 {
        timestamp::read()
    }

    unsafe fn code(&self, address: u64) -> u64 {
        // SAFETY: by the caller's promise this is kernel text, and every page with kernel text is mapped and readable.
        unsafe { (address as *const u64).read_unaligned() }
    }
}

/// Checks the port, on this CPU.
pub(crate) fn check<K: Kernel>(instance: &'static Instance<K>) -> Result<(), CheckError> {
    on(&instance.kernel, &instance.shared, &Here)?;
    arrives(instance, &Here)
}

pub(super) fn on<K: Kernel, M: Machine>(kernel: &K, shared: &Shared, machine: &M) -> Result<(), CheckError> {
    let config = shared.config().filter(|_| !shared.slots().is_empty()).ok_or(CheckError::NotReady)?;
    let cpu = kernel.cpu();
    let slot = shared.slots().get(cpu).ok_or(CheckError::Cpu(cpu))?;
    if !timestamp::PLAUSIBLE_HZ.contains(&config.tsc_hz) {
        return Err(CheckError::Clock(config.tsc_hz));
    }
    if config.sampler_cpu == Some(cpu) {
        sleep(kernel, machine, config.tsc_hz)?;
        return others(kernel, shared, cpu);
    }
    if slot.stream.ring.get().is_none() {
        return Err(CheckError::NotRegistered(cpu));
    }
    stack(kernel)?;
    if config.trigger == Trigger::Nmi { nmi(kernel, config, machine) } else { Ok(()) }
}

/// Checks that a sleep of 1 ms takes 1 ms.
fn sleep<K: Kernel, M: Machine>(kernel: &K, machine: &M, tsc_hz: u64) -> Result<(), CheckError> {
    let wanted = tsc_hz / 1000;
    let (mut best, mut sleeps, mut total) = (u64::MAX, 0, 0);
    while sleeps < SLEEPS || total < SLEEPS_MS * wanted {
        let (start, mut slept, mut returns) = (machine.ticks(), 0, 0);
        while slept < wanted {
            if returns == MAX_RETURNS {
                return Err(CheckError::SleepsNot);
            }
            kernel.sleep_ns(ticks_to_ns(wanted - slept, tsc_hz).max(1));
            slept = machine.ticks().saturating_sub(start);
            returns += 1;
        }
        (best, sleeps, total) = (best.min(slept), sleeps + 1, total + slept);
        if best < 2 * wanted {
            return Ok(());
        }
    }
    Err(CheckError::SleepsLong(ticks_to_ns(best, tsc_hz) / 1000))
}

/// Checks that every CPU except the sampler CPU has registered; waits up to a second for it.
fn others<K: Kernel>(kernel: &K, shared: &Shared, sampler: usize) -> Result<(), CheckError> {
    let missing = || {
        let mut slots = shared.slots().iter().enumerate().filter(|(cpu, _)| *cpu != sampler);
        slots.find(|(_, slot)| slot.stream.ring.get().is_none()).map(|(cpu, _)| cpu)
    };
    for _ in 0..WAITS {
        if missing().is_none() {
            break;
        }
        kernel.sleep_ns(MILLISECOND_NS);
    }
    missing().map_or(Ok(()), |cpu| Err(CheckError::NotRegistered(cpu)))
}

/// Sends every other CPU a tick and checks that it arrives within a second: where the processor has no table of
/// entries, nothing else shows whether NMIs reach the handler. The ticks are part of the account, and of the samples.
fn arrives<K: Kernel, M: Machine>(instance: &'static Instance<K>, machine: &M) -> Result<(), CheckError> {
    let (kernel, shared) = (&instance.kernel, &instance.shared);
    let is_sampler = |config: &&Config| config.sampler_cpu == Some(kernel.cpu()) && config.trigger == Trigger::Nmi;
    let is_wanted = shared.config().filter(is_sampler).is_some() && machine.nmi_vector().is_none();
    if !is_wanted || shared.state() != State::Running {
        return Ok(());
    }
    sampler::send_tick(instance, kernel.cpu());
    let missing = || shared.slots().iter().position(|slot| slot.pending() > 0);
    for _ in 0..WAITS {
        if missing().is_none() {
            break;
        }
        kernel.sleep_ns(MILLISECOND_NS);
    }
    missing().map_or(Ok(()), |cpu| Err(CheckError::NoTick(cpu)))
}

/// Checks that the kernel declares the stack that the check runs on.
#[inline(never)]
fn stack<K: Kernel>(kernel: &K) -> Result<(), CheckError> {
    let here = 0_u64;
    let address = &raw const here as u64;
    let range = kernel.stack_range(address).ok_or(CheckError::NoStack(address))?;
    let is_straight = range.contains(&address) && range.start % 8 == 0 && range.end % 8 == 0;
    let (start, end) = (range.start, range.end);
    if is_straight { Ok(()) } else { Err(CheckError::BadStackRange { address, start, end }) }
}

/// Checks that the NMI is handled by kernel code on a stack of its own, and that the other entry stubs are known as
/// entry code. Only where the processor has a table of entries.
fn nmi<K: Kernel, M: Machine>(kernel: &K, config: &Config, machine: &M) -> Result<(), CheckError> {
    let text = Text::new(config.text);
    let is_text = |address: u64| text.contains(address) || kernel.is_text(address);
    let Some(own) = machine.nmi_vector() else { return Ok(()) };
    let Gate { handler, ist } = machine.gate(own).ok_or(CheckError::NoGate)?;
    if !is_text(handler) {
        return Err(CheckError::GateOutsideText(handler));
    }
    if ist == 0 {
        return Err(CheckError::NoInterruptStack);
    }
    let end = machine.interrupt_stack(ist);
    let Some(end) = end.filter(|end| *end != 0 && end % 16 == 0) else {
        return Err(CheckError::EmptyInterruptStack { ist, end });
    };
    // The size cannot be checked if the kernel does not declare this stack.
    if let Some(range) = kernel.stack_range(end.wrapping_sub(8)) {
        let bytes = end.saturating_sub(range.start);
        if bytes < MIN_STACK_BYTES {
            return Err(CheckError::SmallInterruptStack { bytes });
        }
    }
    let (mut stubs, mut compiled) = (Vectors::default(), Vectors::default());
    for vector in (0..=u8::MAX).filter(|vector| *vector != own) {
        let Some(gate) = machine.gate(vector) else { continue };
        if gate.ist == ist {
            return Err(CheckError::SharedInterruptStack { ist, vector });
        }
        let address = gate.handler;
        if !is_text(address) || !is_text(address.wrapping_add(7)) {
            continue;
        }
        // SAFETY: the first and the last of the eight bytes are kernel text, as was just checked.
        let code = unsafe { machine.code(address) };
        let is_compiled = CompiledEntry::of(vector, &code.to_le_bytes()).is_some();
        if !kernel.is_entry_code(address) && kernel.compiled_entry(address).is_none() {
            if is_compiled { &mut compiled } else { &mut stubs }.insert(vector);
        }
    }
    let is_known = stubs.is_empty() && compiled.is_empty();
    if is_known { Ok(()) } else { Err(CheckError::UnknownEntries { stubs, compiled }) }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
