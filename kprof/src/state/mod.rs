//! The state that the stages share: slots, streams with their owners, choices, the sampling state. Nothing here depends
//! on the type of the kernel.
//!
//! In: `init`, once; then each stage writes its own part. Out: each part by reference. Runs in: any. The fields that an
//! NMI reads are marked. Only ordinary code takes the locks here.

pub(crate) mod account;
pub(crate) mod choices;
pub(crate) mod copier;
pub(crate) mod layers;
pub(crate) mod meta;
pub(crate) mod moment;
pub(crate) mod more_stream;
pub(crate) mod owner;
pub(crate) mod progress;
pub(crate) mod ready;
pub(crate) mod self_cost;
pub(crate) mod settings;
pub(crate) mod slot;
pub(crate) mod stream;
pub(crate) mod transition;

use crate::arch::interrupts;
use crate::config::{Config, Trigger};
use crate::errors::StreamName;
use crate::extension::Extension;
use crate::parts;
use crate::patience::Patience;
use crate::publisher::Publisher;
use crate::ring::Ring;
use account::Sleeps;
use choices::Live;
use copier::{Border, Copier};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use layers::Layers;
use meta::Meta;
use moment::Moment;
use more_stream::MoreStream;
use owner::{Activity, ClaimId, Conflict};
use ready::Ready;
use settings::{Settings, State};
use slot::CpuSlot;
use stream::{OWNER_WAIT_US, Owned, Stream};

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
    state: AtomicU8,
    /// The flight recorder runs, so the producers move the tails of the CPUs' rings. Changes only while a transition
    /// owns every stream.
    recorder: AtomicBool,
    /// Set by the sampler from before it reads `state` until it has sent its signals.
    pub(crate) sending: AtomicBool,
    /// The sampler's sleeps between ticks.
    pub(crate) sleeps: Sleeps,
    /// A sampler is running.
    pub(crate) has_sampler: AtomicBool,
    trigger: AtomicU8,
    /// The meta stream.
    pub meta: Meta,
    /// Taken by every change of choices, state, mode or claim; see [`transition`].
    pub(crate) writer: AtomicBool,
    /// A transition wants every stream, so no reader takes one before it. Otherwise readers that return again and again
    /// could keep it out.
    pub(crate) wants_all: AtomicBool,
    /// The settings and the lease. Changed under the writer's lock.
    layers: spin::Mutex<Option<Layers>>,
    /// The control file whose lease has ended and is not undone yet; 0: none.
    pub(crate) expired_lease: AtomicU64,
    /// The id of the next control file.
    pub(crate) next_file: AtomicU64,
    /// The process whose control file holds the claim.
    pub(crate) claim_process: AtomicU64,
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
            state: AtomicU8::new(State::Stopped as u8),
            recorder: AtomicBool::new(false),
            sending: AtomicBool::new(false),
            sleeps: Sleeps::new(),
            has_sampler: AtomicBool::new(false),
            trigger: AtomicU8::new(Trigger::Timer as u8),
            meta: Meta::new(),
            writer: AtomicBool::new(false),
            wants_all: AtomicBool::new(false),
            layers: spin::Mutex::new(None),
            expired_lease: AtomicU64::new(0),
            next_file: AtomicU64::new(1),
            claim_process: AtomicU64::new(0),
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
        match self.state.load(Ordering::SeqCst) {
            1 => State::Running,
            2 => State::Frozen,
            3 => State::Paused,
            _ => State::Stopped,
        }
    }

    pub(crate) fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::SeqCst);
    }

    /// Stores the choices that `init` was given.
    pub(crate) fn begin(&self, config: &Config) {
        let choices = choices::of(config);
        self.live.store(&choices);
        self.recorder.store(choices.overwrites() && config.running, Ordering::Release);
        let state = if config.running { State::Running } else { State::Stopped };
        self.set_layers(Layers::new(choices, state));
        self.set_state(state);
    }

    /// Whether the producers move the tails of the CPUs' rings.
    pub(crate) fn recorder(&self) -> bool {
        parts::RECORDER && self.recorder.load(Ordering::Acquire)
    }

    /// The trigger in use now: [`Trigger::Timer`] until the sampler runs.
    pub fn trigger(&self) -> Trigger {
        match self.trigger.load(Ordering::Relaxed) {
            0 => Trigger::Nmi,
            1 => Trigger::Ipi,
            2 if parts::PUBLISHED => Trigger::Published,
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
        self.ready.slot(cpu).filter(|_| parts::PUBLISHED).map(|slot| &slot.published)
    }

    /// The extension that `init` was given; before it, and without one, one that does nothing.
    pub(crate) fn extension(&self) -> &'static dyn Extension {
        self.meta.extension()
    }

    /// The extension's stream of a CPU.
    pub(crate) fn more_stream(&self, cpu: usize) -> Option<&'static MoreStream> {
        self.slots().get(cpu)?;
        self.extension().stream(cpu)
    }

    /// The extension's streams of all CPUs, with their names.
    pub(crate) fn more_streams(&self) -> impl Iterator<Item = (StreamName, &'static MoreStream)> {
        let extension = self.extension();
        (0..self.slots().len()).filter_map(move |cpu| Some((StreamName::Event(cpu), extension.stream(cpu)?)))
    }

    /// The stream of this name, if it has memory.
    pub(crate) fn stream(&self, name: StreamName) -> Option<Stream<'_>> {
        match name {
            StreamName::Meta => self.meta.stream(),
            StreamName::Cpu(cpu) => self.slots().get(cpu)?.stream(),
            StreamName::Event(cpu) => self.more_stream(cpu)?.stream(),
        }
    }

    /// Every stream with its name, the CPUs' first.
    pub(crate) fn streams(&self) -> impl Iterator<Item = (StreamName, Stream<'_>)> {
        let cpus = self.slots().iter().enumerate();
        let cpus = cpus.filter_map(|(cpu, slot)| Some((StreamName::Cpu(cpu), slot.stream()?)));
        let more = self.more_streams().filter_map(|(name, more)| Some((name, more.stream()?)));
        cpus.chain(more).chain(self.meta.stream().map(|stream| (StreamName::Meta, stream)))
    }

    /// Takes one stream for a caller with this claim. `None` if there is no such stream.
    pub(crate) fn take(
        &self,
        name: StreamName,
        claim: ClaimId,
        activity: Activity,
    ) -> Option<Result<Owned<'_>, Conflict>> {
        let recorder = || self.records_over(name);
        let mut patience = Patience::us(OWNER_WAIT_US, self.tsc_hz());
        self.let_transition_pass(&mut patience);
        Some(self.stream(name)?.take(claim, activity, patience, recorder))
    }

    /// Whether the producer of this stream moves its tail: a CPU's samples, while the flight recorder runs.
    pub(crate) fn records_over(&self, name: StreamName) -> bool {
        matches!(name, StreamName::Cpu(_)) && self.recorder()
    }

    /// Waits while a transition wants every stream.
    pub(crate) fn let_transition_pass(&self, patience: &mut Patience) {
        while self.wants_all.load(Ordering::Relaxed) {
            if !patience.go_on() {
                break;
            }
        }
    }

    /// The control file that has claimed the streams; 0 if none has.
    pub(crate) fn claim(&self) -> ClaimId {
        self.meta.reader.owner().claim()
    }

    /// The control file that reads copies of the streams; 0 if none does.
    pub(crate) fn copy_claim(&self) -> ClaimId {
        self.meta.copier.owner().claim()
    }

    /// A stream's ring, if it has memory, and the place of the reader of copies in it.
    pub(crate) fn copied_stream(&self, name: StreamName) -> Option<(&Ring, &Copier)> {
        let copier = match name {
            StreamName::Meta => &self.meta.copier,
            StreamName::Cpu(cpu) => &self.slots().get(cpu)?.copier,
            StreamName::Event(cpu) => &self.more_stream(cpu)?.copier,
        };
        Some((self.stream(name)?.ring, copier))
    }

    /// The place of the reader of copies in every stream, also of CPUs that have not registered.
    pub(crate) fn copiers(&self) -> impl Iterator<Item = (StreamName, &Copier)> {
        let cpus = self.slots().iter().enumerate().map(|(cpu, slot)| (StreamName::Cpu(cpu), &slot.copier));
        let more = self.more_streams().map(|(name, more)| (name, &more.copier));
        cpus.chain(more).chain([(StreamName::Meta, &self.meta.copier)])
    }

    /// Where the oldest record of a stream begins that was not freed. `None` if it moves at every attempt.
    pub(crate) fn oldest(&self, name: StreamName) -> Option<Border> {
        match name {
            StreamName::Meta => self.meta.oldest(),
            StreamName::Cpu(cpu) => self.moment(cpu).map(|moment| moment.oldest()),
            StreamName::Event(cpu) => self.more_stream(cpu)?.oldest(),
        }
    }

    /// Where the next record of a stream will begin. `None` for the meta stream, and if it moves at every attempt.
    pub(crate) fn newest(&self, name: StreamName) -> Option<Border> {
        match name {
            StreamName::Meta => None,
            StreamName::Cpu(cpu) => self.moment(cpu).map(|moment| moment.newest()),
            StreamName::Event(cpu) => self.more_stream(cpu)?.newest(),
        }
    }

    /// The counters and positions of a CPU that has memory. `None` if they change at every attempt.
    pub(crate) fn moment(&self, cpu: usize) -> Option<Moment> {
        let slot = self.slots().get(cpu)?;
        Moment::exact(slot, slot.ring.get()?)
    }

    /// The settings of both layers; before `init` those of the default configuration.
    pub(crate) fn layers(&self) -> Layers {
        let layers = interrupts::without(|| *self.layers.lock());
        layers.unwrap_or(Layers::new(self.live.choices(), State::Stopped))
    }

    /// Replaces the settings of both layers. Only for who has the right to make changes.
    pub(crate) fn set_layers(&self, layers: Layers) {
        interrupts::without(|| *self.layers.lock() = Some(layers));
    }
}
