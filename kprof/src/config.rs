//! What the kernel decides at boot: trigger, rate, filter, clock, image. Data only; no code runs here.
//!
//! In: the kernel's choices. Out: [`Setup`], passed to `Profiler::init`. Runs in: boot CPU.

use crate::CpuSlot;
pub use crate::format::command::Mode;
pub use crate::format::precision::Precision;
use crate::format::settings::Choices;
use core::mem::MaybeUninit;

/// How a tick reaches a CPU. A setting in the meta stream says which trigger was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Trigger {
    /// By NMI: samples all code, also with interrupts off.
    #[default]
    Nmi = 0,
    /// By a fixed interrupt: time spent with interrupts off is attributed to the instruction that turns them on.
    Ipi = 1,
    /// Each CPU publishes where it is, and the sampler CPU reads that without interrupting any CPU. Needs
    /// `Kernel::foreign_stacks`.
    Published = 2,
    /// By the CPU's own timer interrupt: for a kernel with one CPU. It is also in use until the sampler runs, whatever
    /// `Config::trigger` is.
    Timer = 3,
}

impl Trigger {
    /// The name on the command line and in the data.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nmi => "nmi",
            Self::Ipi => "ipi",
            Self::Published => "published",
            Self::Timer => "timer",
        }
    }
}

/// What the time stamp counter counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Clock {
    /// Time, at `tsc_hz`.
    #[default]
    Tsc = 0,
    /// Instructions (QEMU with `-icount`); `tsc_hz` of them are one guest second.
    Instructions = 1,
}

/// An event that the processor counts, and whose counter interrupts the CPU when it overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedEvent {
    /// The name in the data: 1 to 32 visible ASCII characters, such as `dtlb-load-misses`.
    pub name: &'static str,
    /// After how many events a tick comes: 1 to 2^40. With random intervals this is the mean.
    pub period: u64,
}

/// The kernel's choices. Start from [`Config::new`] and change what differs.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The CPU that only samples the others, or `None` if each CPU that calls `Profiler::on_timer` samples itself
    /// ([`Trigger::Timer`]; tried with one CPU).
    pub sampler_cpu: Option<usize>,
    /// How ticks reach the other CPUs.
    pub trigger: Trigger,
    /// What causes the ticks, if not time: the CPU calls `Profiler::on_overflow` ([`Trigger::Timer`] only). `hz` is
    /// then not used.
    pub event: Option<CountedEvent>,
    /// Ticks per second, 1 to 100 000.
    pub hz: u32,
    /// Seed of the random intervals.
    pub seed: u64,
    /// Intervals are uniform within ±25 % of the period; `false`: fixed.
    pub random_interval: bool,
    /// Include samples of the idle task.
    pub include_idle: bool,
    /// Include samples of user code.
    pub include_user: bool,
    /// Lower the rate when sampling costs too much.
    pub backoff: bool,
    /// The most frames recorded of each stack, 1 to 250.
    pub depth: u16,
    /// What happens when a ring is full.
    pub mode: Mode,
    /// Report a CPU that is locked up for this many milliseconds (`EventKernel::locked_up` of `kprof-events`); 0, the
    /// default: no report. Needs a sampler CPU and `Events` of `kprof-events`. The shortest useful time is about 12
    /// intervals.
    pub lockup_ms: u32,
    /// Sample from the start, without a `start` command.
    pub running: bool,
    /// Whether the kernel can put a process to sleep that writes `wait MS` to ctl.
    pub can_wait: bool,
    /// An id of this boot, which distinguishes boots in one file. With 0, the default, `init` makes an id from the TSC.
    pub boot: u64,
    /// TSC ticks per second, calibrated (see the module `clock`).
    pub tsc_hz: u64,
    /// What the TSC counts.
    pub clock: Clock,
    /// Whether kernel code can read the processor's cycle counter on every sampled CPU, and the kernel has started it.
    /// Where the clock is coarser than 10 ns (aarch64, riscv64) the self cost is measured by it, or not at all. Not
    /// used on x86_64, where the TSC is the counter.
    pub cycle_counter: bool,
    /// Where ticks can be taken, if the kernel knows. The host tool uses it to say how exact addresses are.
    pub precision: Precision,
    /// What the kernel runs on, in one line, as `qemu-10.0.13`; empty: the profile does not say.
    pub machine: &'static str,
    /// Only for a kernel that is moved when it is loaded (PIE, KASLR): where its image begins then. If the image has a
    /// part in the upper half, that part is meant. This is not where the text begins, unless the text comes first. 0:
    /// the kernel runs at the addresses of its ELF file.
    pub load: u64,
    /// The main range of kernel code: start, end. Must be readable and mapped for ever.
    pub text: (u64, u64),
    /// The build id of the kernel image, or empty.
    pub build_id: &'static [u8],
    /// One or two symbols with their addresses, by which the host tool notices a wrong symbol file.
    pub anchors: &'static [(&'static str, u64)],
}

impl Config {
    /// The defaults: NMI, 1000 Hz, random intervals, 64 frames, drop mode, stopped.
    pub const fn new() -> Self {
        let settings = Choices::DEFAULT;
        Self {
            sampler_cpu: Some(0),
            trigger: Trigger::Nmi,
            event: None,
            hz: settings.hz,
            seed: settings.seed,
            random_interval: settings.random_interval,
            include_idle: settings.include_idle,
            include_user: settings.include_user,
            backoff: settings.backoff,
            depth: settings.depth,
            mode: settings.mode,
            lockup_ms: settings.lockup_ms,
            running: false,
            can_wait: false,
            boot: 0,
            tsc_hz: 0,
            clock: Clock::Tsc,
            cycle_counter: false,
            precision: Precision::Unknown,
            machine: "",
            load: 0,
            text: (0, 0),
            build_id: &[],
            anchors: &[],
        }
    }
}

#[cfg(feature = "profiling")]
impl Config {
    /// The settings that can be changed later.
    pub(crate) const fn choices(&self) -> Choices {
        let Self { hz, random_interval, seed, include_idle, include_user, backoff, depth, mode, lockup_ms, .. } = *self;
        Choices { hz, random_interval, seed, include_idle, include_user, backoff, depth, mode, lockup_ms }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

/// What `Profiler::init` needs.
pub struct Setup {
    /// One slot for each CPU that may ever come up, by CPU number.
    pub slots: &'static [CpuSlot],
    /// Memory of the meta stream, a power of two of words.
    pub meta: &'static mut [MaybeUninit<u64>],
    /// The choices.
    pub config: Config,
}
