//! What the stages own, side by side: slots, streams, settings. Nothing here depends on the type of the kernel.
//!
//! In: `init`, once; then each stage writes its own part. Out: each part by reference, and the streams by their names.
//! Runs in: any. The fields that an NMI reads are marked. Only ordinary code takes the locks here.

use crate::account::Sleeps;
use crate::arch::interrupts;
use crate::config::{Config, Trigger};
use crate::control::layers::Layers;
use crate::errors::{StateError, StreamName};
use crate::extension::Extension;
use crate::live::{Live, Settings, State};
use crate::moment::CpuMoment;
use crate::patience::Patience;
use crate::publisher::Publisher;
use crate::ready::Ready;
use crate::slot::CpuSlot;
use crate::stream::copier::Border;
use crate::stream::meta::{ClaimId, Meta};
use crate::stream::owner::{Activity, Owner};
use crate::stream::{OWNER_WAIT_US, Owned, Stream};
use crate::transition::ChangeLock;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// Undoes what the holder of a lease has set, after its control file was closed.
pub(crate) type UndoLease = fn(&Shared, &ChangeLock<'_>) -> Result<(), StateError>;

/// Why a stream could not be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Conflict {
    /// Another control file has the claim.
    Claimed,
    /// Another owner is at work.
    Busy,
}

/// The kernel and the shared state, for the stages that call the kernel.
pub struct Instance<K> {
    /// The kernel.
    pub kernel: K,
    /// The state that the stages share.
    pub shared: Shared,
}

/// The shared state, without the kernel itself.
pub struct Shared {
    /// Slots and configuration; read in NMIs.
    pub ready: Ready,
    /// The choices in force; read in NMIs.
    pub live: Live,
    /// The flight recorder runs, so the producers move the tails of the CPUs' rings. Changes only while a transition
    /// owns every stream.
    pub(crate) recorder: AtomicBool,
    /// Set by the sampler from before it reads `state` until it has sent its signals.
    pub(crate) sending: AtomicBool,
    /// The sampler's sleeps between ticks.
    pub(crate) sleeps: Sleeps,
    /// A sampler is running.
    pub(crate) has_sampler: AtomicBool,
    trigger: AtomicU8,
    /// The meta stream.
    pub meta: Meta,
    /// Taken by every change of choices, state, mode or claim; see `transition`.
    pub(crate) changes: spin::Mutex<()>,
    /// A transition wants every stream, so no reader takes one before it. Otherwise readers that return again and again
    /// could keep it out.
    pub(crate) wants_all: AtomicBool,
    /// The settings and the lease. Changed under the lock of changes.
    layers: spin::Mutex<Layers>,
    /// Undoes an expired lease. Set when the first control file is opened, so that a kernel without control files has
    /// no code of leases.
    pub(crate) undo_lease: spin::Once<UndoLease>,
    /// The control file whose lease has ended and is not undone yet; 0: none.
    pub(crate) expired_lease: AtomicU64,
    /// The id of the next control file.
    pub(crate) next_file: AtomicU64,
    /// The process whose control file holds the claim.
    pub(crate) claim_process: AtomicU64,
    /// The control file that reads copies; 0: none.
    pub(crate) copy_claim: AtomicU64,
    /// The process whose control file reads copies.
    pub(crate) copy_process: AtomicU64,
    /// The TSC time until which a reader waits for records.
    pub(crate) waited_until: AtomicU64,
    /// The number of the next line of the serial form.
    pub export_sequence: AtomicU64,
}

impl Shared {
    /// Before `init`: no CPUs, stopped.
    pub(crate) const fn new() -> Self {
        Self {
            ready: Ready::new(),
            live: Live::new(),
            recorder: AtomicBool::new(false),
            sending: AtomicBool::new(false),
            sleeps: Sleeps::new(),
            has_sampler: AtomicBool::new(false),
            trigger: AtomicU8::new(Trigger::Timer as u8),
            meta: Meta::new(),
            changes: spin::Mutex::new(()),
            wants_all: AtomicBool::new(false),
            layers: spin::Mutex::new(Layers::new(Config::new().choices(), State::Stopped)),
            undo_lease: spin::Once::new(),
            expired_lease: AtomicU64::new(0),
            next_file: AtomicU64::new(1),
            claim_process: AtomicU64::new(0),
            copy_claim: AtomicU64::new(0),
            copy_process: AtomicU64::new(0),
            waited_until: AtomicU64::new(0),
            export_sequence: AtomicU64::new(0),
        }
    }

    /// The CPUs; none before `init`.
    #[inline(always)]
    pub fn slots(&self) -> &'static [CpuSlot] {
        self.ready.slots()
    }

    /// The choices of `init`; `None` before it.
    #[inline(always)]
    pub fn config(&self) -> Option<&Config> {
        self.ready.config()
    }

    /// The settings that are read in NMIs.
    #[inline(always)]
    pub fn settings(&self) -> Settings {
        self.live.settings()
    }

    /// Whether this is an address of kernel code: in [`Config::text`], or in the upper half. The code of modules of a
    /// kernel in the lower half is known only to [`crate::Kernel::is_text`].
    pub fn is_kernel_code(&self, address: u64) -> bool {
        address >> 63 == 1 || self.ready.text.get().contains(address)
    }

    /// TSC ticks per second; 0 before `init`.
    pub fn tsc_hz(&self) -> u64 {
        self.config().map_or(0, |config| config.tsc_hz)
    }

    /// Whether ticks are sent.
    pub fn state(&self) -> State {
        self.live.state()
    }

    /// Stores the choices that `init` was given.
    pub(crate) fn begin(&self, config: &Config) {
        let choices = config.choices();
        self.live.store(&choices);
        self.recorder.store(choices.overwrites() && config.running, Ordering::Release);
        let state = if config.running { State::Running } else { State::Stopped };
        self.set_layers(Layers::new(choices, state));
        self.live.set_state(state);
    }

    /// Whether the producers move the tails of the CPUs' rings.
    pub(crate) fn recorder(&self) -> bool {
        self.recorder.load(Ordering::Acquire)
    }

    /// The trigger in use now: [`Trigger::Timer`] until the sampler runs.
    pub fn trigger(&self) -> Trigger {
        match self.trigger.load(Ordering::Relaxed) {
            0 => Trigger::Nmi,
            1 => Trigger::Ipi,
            2 => Trigger::Published,
            _ => Trigger::Timer,
        }
    }

    /// Says how ticks are sent from now on.
    pub fn set_trigger(&self, trigger: Trigger) {
        self.trigger.store(trigger as u8, Ordering::Relaxed);
    }

    /// Where a CPU publishes what it is doing.
    #[inline(always)]
    pub(crate) fn publisher(&self, cpu: usize) -> Option<&'static Publisher> {
        self.ready.slot(cpu).map(|slot| &slot.published)
    }

    /// The extension that `init` was given; before it, and without one, one that does nothing.
    pub(crate) fn extension(&self) -> &'static dyn Extension {
        self.meta.extension()
    }

    /// The stream of this name, if it has memory.
    pub(crate) fn stream(&self, name: StreamName) -> Option<&Stream> {
        self.place(name).filter(|stream| stream.ring.get().is_some())
    }

    #[inline(never)]
    fn place(&self, name: StreamName) -> Option<&Stream> {
        match name {
            StreamName::Meta => Some(&self.meta.stream),
            StreamName::Cpu(cpu) => Some(&self.slots().get(cpu)?.stream),
            StreamName::Event(cpu) => self.slots().get(cpu).and(self.extension().stream(cpu)),
        }
    }

    /// Every stream with its name, also those without memory; the CPUs' first.
    pub(crate) fn streams(&self) -> impl Iterator<Item = (StreamName, &Stream)> {
        let cpus = self.slots().len();
        (0..=2 * cpus).filter_map(move |number| {
            let name = match number {
                cpu if cpu < cpus => StreamName::Cpu(cpu),
                number if number < 2 * cpus => StreamName::Event(number - cpus),
                _ => StreamName::Meta,
            };
            Some((name, self.place(name)?))
        })
    }

    /// Takes one stream for a caller with this claim. `None` if there is no such stream.
    pub(crate) fn take(
        &self,
        name: StreamName,
        claim: ClaimId,
        activity: Activity,
    ) -> Option<Result<Owned<'_>, Conflict>> {
        let stream = self.stream(name)?;
        let mut patience = Patience::us(OWNER_WAIT_US, self.tsc_hz());
        let taken = self.take_owner(&stream.reader.owner, claim, activity, &mut patience);
        // Asked after the stream was taken, because the answer cannot change from then on.
        Some(taken.map(|()| stream.taken(self.records_over(name), true)))
    }

    /// Takes the lock of a stream for a caller with this claim (0: it has none).
    pub(crate) fn take_owner(
        &self,
        owner: &Owner,
        claim: ClaimId,
        activity: Activity,
        patience: &mut Patience,
    ) -> Result<(), Conflict> {
        // While a transition wants every stream, nobody takes one before it.
        while self.wants_all.load(Ordering::Relaxed) {
            if !patience.go_on() {
                break;
            }
        }
        if self.claim() != claim {
            return Err(Conflict::Claimed);
        }
        if !owner.take_within(activity, patience) {
            return Err(Conflict::Busy);
        }
        // A transition may have changed the claim before the stream was taken. It cannot do so from now on.
        if self.claim() != claim {
            owner.leave();
            return Err(Conflict::Claimed);
        }
        Ok(())
    }

    /// Whether the producer of this stream moves its tail: a CPU's samples, while the flight recorder runs.
    pub(crate) fn records_over(&self, name: StreamName) -> bool {
        matches!(name, StreamName::Cpu(_)) && self.recorder()
    }

    /// The control file that has claimed the streams; 0 if none has.
    pub(crate) fn claim(&self) -> ClaimId {
        self.meta.claim.load(Ordering::Acquire)
    }

    /// The control file that reads copies of the streams; 0 if none does.
    pub(crate) fn copy_claim(&self) -> ClaimId {
        self.copy_claim.load(Ordering::Acquire)
    }

    /// Ends the claim of this control file, if it has the claim, or its reading of copies. An owner that works under
    /// this claim finishes first; the next one can take the stream after that.
    pub(crate) fn drop_claim(&self, file: ClaimId) {
        for claim in [&self.meta.claim, &self.copy_claim] {
            let _ = claim.compare_exchange(file, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Where the oldest record of a stream begins that was not freed. `None` if it moves at every attempt.
    pub(crate) fn oldest(&self, name: StreamName) -> Option<Border> {
        match name {
            StreamName::Meta => self.meta.oldest(),
            StreamName::Cpu(cpu) => self.moment(cpu).map(|moment| moment.oldest()),
            StreamName::Event(_) => self.stream(name)?.oldest(),
        }
    }

    /// Where the next record of a stream will begin. `None` for the meta stream, and if it moves at every attempt.
    pub(crate) fn newest(&self, name: StreamName) -> Option<Border> {
        match name {
            StreamName::Meta => None,
            StreamName::Cpu(cpu) => self.moment(cpu).map(|moment| moment.newest()),
            StreamName::Event(_) => self.stream(name)?.newest(),
        }
    }

    /// The counters and positions of a CPU that has memory. `None` if they change at every attempt.
    pub(crate) fn moment(&self, cpu: usize) -> Option<CpuMoment> {
        let slot = self.slots().get(cpu)?;
        CpuMoment::exact(slot, slot.stream.ring.get()?)
    }

    /// The settings of both layers; before `init` those of the default configuration.
    pub(crate) fn layers(&self) -> Layers {
        interrupts::without(|| *self.layers.lock())
    }

    /// Replaces the settings of both layers. Only for who has the right to make changes.
    pub(crate) fn set_layers(&self, layers: Layers) {
        interrupts::without(|| *self.layers.lock() = layers);
    }
}
