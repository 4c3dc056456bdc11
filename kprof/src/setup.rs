//! Sets the profiler up from memory and choices, and adds and removes CPUs.
//!
//! In: [`Setup`], ring memory. Out: slots and rings that the stages use, or an error. Runs in: ordinary code; `init` on
//! the boot CPU, `register` on the CPU concerned.

use crate::config::{Config, CountedEvent, Setup, Trigger};
use crate::errors::{InitError, MAX_DEPTH, MAX_TSC_HZ, RegisterError};
use crate::extension::Extension;
use crate::kernel::Kernel;
use crate::patience::Patience;
use crate::shared::{Instance, Shared};
use core::mem::MaybeUninit;
use core::sync::atomic::{Ordering, fence};

/// Sets the profiler up, once. `extend` prepares the extension for this number of CPUs and these choices,
/// last; if it fails, all does.
pub fn init<K: Kernel>(
    instance: &'static Instance<K>,
    extension: &'static dyn Extension,
    setup: impl FnOnce() -> Setup,
    extend: impl FnOnce(usize, &Config) -> Result<(), InitError>,
) -> Result<(), InitError> {
    let (shared, mut result) = (&instance.shared, Err(InitError::Twice));
    shared.ready.once(|| {
        let Setup { slots, meta, mut config } = setup();
        result = check(&config, slots.len(), instance.kernel.foreign_stacks().is_some());
        if result.is_ok() {
            let taken = slots.iter().take_while(|slot| slot.take()).count();
            if taken < slots.len() {
                slots.iter().take(taken).for_each(|slot| slot.give_back());
                result = Err(InitError::SlotTaken(taken));
            } else if let Err(bad) = shared.meta.install(meta, extension) {
                slots.iter().for_each(|slot| slot.give_back());
                result = Err(InitError::MetaMemory(bad));
            } else if let Err(error) = extend(slots.len(), &config) {
                slots.iter().for_each(|slot| slot.give_back());
                result = Err(error);
            }
        }
        if result.is_err() {
            // With no slots, every later call finds no CPU and does nothing.
            return (&[], config);
        }
        if config.boot == 0 {
            config.boot = crate::intervals::Intervals::new(crate::arch::timestamp::read()).word() | 1;
        }
        shared.begin(&config);
        (slots, config)
    });
    result
}

/// What events would do is refused without them.
pub(crate) fn without_events(_: usize, config: &Config) -> Result<(), InitError> {
    if config.lockup_ms > 0 { Err(InitError::NoEvents) } else { Ok(()) }
}

fn check(config: &Config, slots: usize, has_foreign_stacks: bool) -> Result<(), InitError> {
    let error = match config {
        _ if slots == 0 => InitError::NoSlots,
        Config { trigger: Trigger::Published, .. } if !has_foreign_stacks => InitError::NoForeignStacks,
        Config { event: Some(event), trigger, .. } if *trigger != Trigger::Timer || !is_sound(event) => {
            InitError::Event
        }
        Config { depth, .. } if !(1..=MAX_DEPTH).contains(depth) => InitError::Depth(*depth),
        Config { hz, .. } if !(1..=100_000).contains(hz) => InitError::Hz(*hz),
        Config { tsc_hz, .. } if !(1..=MAX_TSC_HZ).contains(tsc_hz) => InitError::TscHz(*tsc_hz),
        Config { text, .. } if text.0 >= text.1 => InitError::Text(*text),
        Config { sampler_cpu: Some(cpu), .. } if *cpu >= slots => InitError::SamplerCpu(*cpu),
        Config { sampler_cpu: None, trigger, .. } if *trigger != Trigger::Timer => InitError::NoSampler,
        Config { sampler_cpu: Some(_), trigger, .. } if *trigger != Trigger::Timer && slots == 1 => {
            InitError::OnlySampler
        }
        _ => return Ok(()),
    };
    Err(error)
}

/// Whether an event has a name for the header, and a period that can be counted.
fn is_sound(event: &CountedEvent) -> bool {
    let name = event.name.as_bytes();
    (1..=32).contains(&name.len()) && name.iter().all(u8::is_ascii_graphic) && (1..=1 << 40).contains(&event.period)
}

/// Gives a CPU its ring. If the CPU has a ring already, lets it take ticks again after `offline`.
pub(crate) fn register(
    shared: &'static Shared,
    cpu: usize,
    ring: impl FnOnce() -> &'static mut [MaybeUninit<u64>],
) -> Result<(), RegisterError> {
    let slot = shared.slots().get(cpu).ok_or(RegisterError::NoSlot(cpu))?;
    let decide = || {
        if let Some(config) = shared.config() {
            slot.handler.self_cost.decide(config);
        }
    };
    if slot.begin_registering() {
        decide();
        return slot.install(ring()).map_err(RegisterError::Memory);
    }
    if slot.stream.ring.get().is_none() {
        return Err(RegisterError::Twice(cpu));
    }
    // The counter may have been stopped meanwhile.
    decide();
    slot.sampler.offline.store(false, Ordering::Release);
    Ok(())
}

/// How long a CPU may take for the last tick that was sent to it.
const OFFLINE_WAIT_US: u64 = 10_000;

/// Excludes a CPU: it gets no more ticks, and no change of state waits for ticks that it has not taken. So a tick that
/// is on its way is waited for here: the caller cannot know of it.
pub(crate) fn offline(shared: &Shared, cpu: usize) {
    let Some(slot) = shared.slots().get(cpu) else { return };
    slot.sampler.offline.store(true, Ordering::SeqCst);
    // With this fence and that of `send_tick`, either the sampler sees that the CPU is offline, or `sending` is seen.
    fence(Ordering::SeqCst);
    let mut patience = Patience::us(OFFLINE_WAIT_US, shared.tsc_hz());
    let is_on_its_way = || shared.sending.load(Ordering::SeqCst) || slot.pending() > 0 || slot.in_handler();
    while is_on_its_way() && patience.go_on() {}
}
