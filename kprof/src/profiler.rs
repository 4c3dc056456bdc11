//! The profiler itself: what a kernel puts into a `static`, and how its stages find each other.
//!
//! In: the kernel's hooks, memory, choices. Out: the stages, as methods in their own files (`sampler`, `handler`,
//! `drain`, `control`, `meta`). Context: here only set-up, start and stop, in ordinary code; nothing here takes a lock.

use crate::config::{Config, Mode, Setup, Way};
use crate::control::ControlState;
use crate::kernel::Kernel;
use crate::meta::Meta;
use crate::ready::Ready;
use crate::settings::{MOST_DEPTH, Settings, State};
use crate::slot::CpuSlot;
use crate::x86_64::tsc;
use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// Whether the profiler is compiled in.
pub const ENABLED: bool = true;
/// The usual size of a CPU's ring, 256 KiB; 0 with the feature off.
pub const DEFAULT_RING_WORDS: usize = 32 * 1024;

/// The profiler of a kernel. Make it in a `static`.
pub struct Profiler<K: Kernel> {
    kernel: K,
    pub(crate) ready: Ready,
    pub(crate) live: Live,
    pub(crate) meta: Meta,
    pub(crate) control: ControlState,
    /// The number of the next line of the serial form.
    pub(crate) export_sequence: AtomicU64,
    /// Held by who takes the counts of events by context.
    pub(crate) events_taker: spin::Mutex<()>,
}

/// What can change while running.
pub(crate) struct Live {
    settings: AtomicU64,
    /// What follows from them for the plain walk.
    pub(crate) plain_places: AtomicU32,
    state: AtomicU8,
    /// The sampler is between its look at `state` and the end of its signals.
    pub(crate) sending: AtomicBool,
    /// The way in use now: `Own` until the sampler runs.
    way: AtomicU8,
    pub(crate) hz: AtomicU32,
    pub(crate) seed: AtomicU64,
    pub(crate) random_gaps: AtomicBool,
    pub(crate) backoff: AtomicBool,
    /// How often the rate is halved now.
    pub(crate) halvings: AtomicU32,
}

/// `stop` gave up waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopError {
    /// The first CPU that has not taken all ticks sent to it.
    pub cpu: usize,
    /// How many it has not taken.
    pub pending: u64,
}

impl fmt::Display for StopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "stopped, but cpu {} has not taken {} ticks within a second: does its NMI entry call on_nmi?",
            self.cpu, self.pending
        )
    }
}

impl<K: Kernel> Profiler<K> {
    /// For a `static`.
    pub const fn new(kernel: K) -> Self {
        Self {
            kernel,
            ready: Ready::new(),
            live: Live {
                settings: AtomicU64::new(1 << 16),
                plain_places: AtomicU32::new(u32::MAX),
                state: AtomicU8::new(State::Stopped as u8),
                sending: AtomicBool::new(false),
                way: AtomicU8::new(Way::Own as u8),
                hz: AtomicU32::new(1000),
                seed: AtomicU64::new(0),
                random_gaps: AtomicBool::new(true),
                backoff: AtomicBool::new(false),
                halvings: AtomicU32::new(0),
            },
            meta: Meta::new(),
            control: ControlState::new(),
            export_sequence: AtomicU64::new(0),
            events_taker: spin::Mutex::new(()),
        }
    }

    /// Sets the profiler up. Context: the boot CPU, once, as soon as memory and the choices are there; `setup` is not
    /// called with the feature off. A second call changes nothing.
    ///
    /// # Panics
    /// When the meta memory is not a power of two of at least 1024 words, or a choice is out of its range.
    pub fn init(&'static self, setup: impl FnOnce() -> Setup) {
        self.ready.once(|| {
            let Setup { slots, meta, config } = setup();
            assert!((1..=MOST_DEPTH).contains(&config.depth), "kprof: depth must be 1 to 250, is {}", config.depth);
            assert!((1..=100_000).contains(&config.hz), "kprof: hz must be 1 to 100000, is {}", config.hz);
            assert!(config.tsc_hz > 0, "kprof: tsc_hz is 0: calibrate the TSC first (kprof::clock)");
            self.meta.install(meta);
            let mut settings = Settings::empty().with_depth(config.depth);
            settings.set(Settings::KEEP_IDLE, config.keep_idle);
            settings.set(Settings::KEEP_USER, config.keep_user);
            settings.set(Settings::OVERWRITE, config.mode == Mode::Overwrite);
            self.set_settings(settings);
            self.live.hz.store(config.hz, Ordering::Relaxed);
            self.live.seed.store(config.seed, Ordering::Relaxed);
            self.live.random_gaps.store(config.random_gaps, Ordering::Relaxed);
            self.live.backoff.store(config.backoff, Ordering::Relaxed);
            let state = if config.running { State::Running } else { State::Stopped };
            self.live.state.store(state as u8, Ordering::SeqCst);
            (slots, config)
        });
    }

    /// Gives a CPU its ring; from now on it gets ticks. Context: that CPU, after it has loaded an IDT with an NMI entry.
    /// `ring` (a power of two of at least 1024 words) is not called with the feature off, nor the second time.
    ///
    /// # Panics
    /// When the CPU has no slot or the memory is no ring.
    pub fn register(&'static self, cpu: usize, ring: impl FnOnce() -> &'static mut [MaybeUninit<u64>]) {
        let Some(slot) = self.slots().get(cpu) else {
            panic!("kprof: cpu {cpu} has no slot (init gave {})", self.slots().len());
        };
        if slot.ring.get().is_some() {
            return;
        }
        if let Err(reason) = slot.install(ring()) {
            panic!("kprof: ring memory of cpu {cpu}: {reason:?}");
        }
    }

    /// Starts sampling. Context: ordinary code.
    pub fn start(&self) {
        if self.state() == State::Stopped {
            self.forget_events();
        }
        self.set_state(State::Running);
    }

    /// Stops sampling, and returns when every tick sent has been taken. Context: ordinary code on any CPU; with
    /// [`Way::Ipi`] interrupts must be on.
    ///
    /// # Errors
    /// A CPU did not take its ticks within a second; sampling is stopped all the same.
    pub fn stop(&self) -> Result<(), StopError> {
        self.set_state(State::Stopped);
        let settled = self.settle();
        self.write_events();
        settled
    }

    /// Numbers a tick of this CPU without sending anything: for benches, which then call the handler.
    #[doc(hidden)]
    pub fn raise_tick(&self, cpu: usize) {
        if let Some(slot) = self.ready.slot(cpu) {
            slot.raise_tick();
        }
    }

    /// Waits until no tick is on its way.
    pub(crate) fn settle(&self) -> Result<(), StopError> {
        fence(Ordering::SeqCst);
        let limit = self.config().map_or(0, |config| config.tsc_hz);
        let start = tsc::read();
        loop {
            let sending = self.live.sending.load(Ordering::SeqCst);
            let late = self.slots().iter().enumerate().find(|(_, slot)| slot.pending() > 0 || slot.in_handler());
            match late {
                None if !sending => return Ok(()),
                Some((cpu, slot)) if tsc::read().wrapping_sub(start) > limit => {
                    return Err(StopError { cpu, pending: slot.pending() });
                }
                _ => core::hint::spin_loop(),
            }
        }
    }

    #[inline(always)]
    pub(crate) fn kernel(&self) -> &K {
        &self.kernel
    }

    #[inline(always)]
    pub(crate) fn slots(&self) -> &'static [CpuSlot] {
        self.ready.slots()
    }

    #[inline(always)]
    pub(crate) fn config(&self) -> Option<&Config> {
        self.ready.config()
    }

    #[inline(always)]
    pub(crate) fn settings(&self) -> Settings {
        Settings::from_bits_retain(self.live.settings.load(Ordering::Relaxed))
    }

    pub(crate) fn set_settings(&self, settings: Settings) {
        self.live.settings.store(settings.bits(), Ordering::Relaxed);
        self.live.plain_places.store(settings.plain_places(), Ordering::Relaxed);
    }

    pub(crate) fn state(&self) -> State {
        match self.live.state.load(Ordering::SeqCst) {
            1 => State::Running,
            2 => State::Frozen,
            _ => State::Stopped,
        }
    }

    pub(crate) fn set_state(&self, state: State) {
        self.live.state.store(state as u8, Ordering::SeqCst);
    }

    pub(crate) fn way(&self) -> Way {
        match self.live.way.load(Ordering::Relaxed) {
            0 => Way::Nmi,
            1 => Way::Ipi,
            2 => Way::Published,
            _ => Way::Own,
        }
    }

    pub(crate) fn set_way(&self, way: Way) {
        self.live.way.store(way as u8, Ordering::Relaxed);
    }
}
