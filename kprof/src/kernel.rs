//! The interface between kernel and profiler: what the kernel tells the profiler, and where each function is called.
//!
//! In: the kernel's implementation of [`Kernel`]. Out: information about CPUs, stacks, text and time. Every function
//! says where it is called. Those called in an NMI must not take a lock, allocate, print, fault or loop without bound.

use crate::CpuSet;
use crate::format::marker::Marker;
use core::marker::PhantomData;
use core::ops::Range;

/// The information that only the kernel has. A port is an implementation of this trait and a few calls.
///
/// # Safety
/// In an NMI, in a hit of a point that is recorded and in a check the profiler reads memory wherever these
/// functions say that it may. So an `unsafe impl` promises, for every call at any time:
///
/// - [`Kernel::cpu`]: no two CPUs ever get the same number, and a CPU's number does not change between the beginning
///   and the end of an NMI. (Two CPUs with one number would both write to one ring, past its end.)
/// - [`Kernel::stack_range`]: every byte of a returned range is ordinary memory, mapped and readable, and stays so
///   until the call into kprof returns in which this function was called: an NMI, a hit of a point, a check. It is a
///   stack of the calling CPU, and no other CPU writes to it meanwhile. (Not part of the promise, because it is
///   checked: that the range ends at a multiple of 8, has room for a frame, and contains `address`. Only aligned words
///   are read, wherever it starts.)
/// - [`Kernel::is_text`]: if the answer is `true`, the whole 4 KiB page around `address` is ordinary memory, mapped and
///   readable, and stays so until the call into kprof returns that called this function. So a module's memory may be
///   freed only when no CPU can still be in an NMI that began before the answer became `false`, and no sample of
///   [`crate::Trigger::Published`] that began before then can still be in progress.
/// - [`crate::Config::text`], of whatever configuration a [`crate::Profiler`] of this kernel is initialised with: each
///   page that the range touches is ordinary memory, mapped and readable for ever.
/// - [`Kernel::read_user`] and [`Kernel::read_user_frame`]: sound for every address: they do not fault, and read only
///   memory that the loaded page tables map for user code.
/// - Functions marked "Runs in: NMI" do not fault, take no lock, do not allocate or print, and always return. (A fault
///   inside an NMI unblocks NMIs, so the next one arrives on the same stack.)
///
/// Wrong answers of the other functions can make samples wrong, but are not unsafe.
pub unsafe trait Kernel: Sync + 'static {
    /// The number of the calling CPU, from 0.
    ///
    /// Runs in: NMI, at any instruction, so it must not trust a register that user code may have set (GS, `tp`,
    /// `tpidr_el0`): take it from the NMI's own stack, from the interrupt controller's or the processor's id. See the
    /// trait's Safety section.
    fn cpu(&self) -> usize;

    /// Sends an NMI (or, with [`crate::Trigger::Ipi`], the fixed interrupt) to each CPU of the set.
    ///
    /// Runs in: the sampler CPU, ordinary code, interrupts as the kernel left them. (Until `run_sampler` is called,
    /// [`crate::Profiler::on_timer`] on the sampler CPU calls it, in the timer interrupt, with
    /// [`crate::Trigger::Nmi`].) [`CpuSet::all_others`] says when the APIC's "all but me" shorthand has the same effect
    /// as one message for each CPU.
    fn signal(&self, cpus: &CpuSet<'_>);

    /// Whether `cpu` waits in `hlt` for work and has not begun to serve an interrupt. If so, its tick counts as `idle`
    /// at once and the CPU is not woken. (This is not called with `include idle`, nor if [`crate::Config::trigger`] is
    /// `Published` or `Timer`.)
    ///
    /// Runs in: the sampler CPU, at each tick. Set the flag before the `hlt`, with interrupts off. Clear it at the very
    /// beginning of every interrupt, or interrupts on an idle core are counted as idle. The default wakes every CPU at
    /// every tick. That is correct too, but virtual CPUs that share the host's cores then slow each other down.
    fn is_halted(&self, cpu: usize) -> bool {
        let _ = cpu;
        false
    }

    /// The range that contains `address`, among the stacks that THIS CPU uses now (its thread's, those of interrupts
    /// and of NMIs).
    ///
    /// Runs in: NMI, also in the middle of a task switch. Answer without locks, from data that is valid at every
    /// instruction of the switch. Start and end are multiples of 8. The profiler reads memory in the range that this
    /// returns: see the trait's Safety section.
    fn stack_range(&self, address: u64) -> Option<Range<u64>>;

    /// Whether `address` is kernel code (modules too), mapped and readable, outside of [`crate::Config::text`].
    ///
    /// Runs in: NMI. Called only for addresses outside of the main text range.
    fn is_text(&self, address: u64) -> bool {
        let _ = address;
        false
    }

    /// The running task, and whether it is the idle task of this CPU. Runs in: NMI, also in the middle of a task
    /// switch; and in a hit of a point that is recorded, as [`Kernel::stack_range`] and [`Kernel::is_text`] do then.
    fn task(&self) -> Task;

    /// One word of user memory, or `None`. Must never fault, whatever `address` is: walk the page tables by software.
    ///
    /// Runs in: NMI, with the user's address space loaded. With the default, user frames are not recorded.
    fn read_user(&self, address: u64) -> Option<u64> {
        let _ = address;
        None
    }

    /// The two words of a user frame: the one at `frame` and the one after it, or `None` if either cannot be read.
    ///
    /// Runs in: NMI, as [`Kernel::read_user`], which the default calls twice. Most frames have both words in one page,
    /// so a kernel that finds the page once saves instructions for each frame.
    #[inline(always)]
    fn read_user_frame(&self, frame: u64) -> Option<[u64; 2]> {
        Some([self.read_user(frame)?, self.read_user(frame.wrapping_add(8))?])
    }

    /// Whether `address` is code of an entry stub: the assembly between the hardware's entry (interrupt, exception,
    /// system call, NMI) and the call of a Rust function, and back. There the frame pointer may still be that of the
    /// interrupted code, or the user's. So the chain of frame pointers would skip the interrupted function, and nothing
    /// would show it.
    ///
    /// Runs in: NMI, for the interrupted instruction. Without [`Kernel::MARKED_ENTRIES`] it is also called for each
    /// return address that is kernel code. `false` for every address is right only if no sample can be taken inside a
    /// stub: all stubs run with interrupts off, and the trigger is not an NMI.
    fn is_entry_code(&self, address: u64) -> bool;

    /// `true`: every entry stub leaves the frame of docs/nmi-rules.md, with a marker word, before it calls a Rust
    /// function. `false`: each return address is checked, and a stack is truncated at a stub unless
    /// [`Kernel::caller_entry_frame`] says how it continues.
    const MARKED_ENTRIES: bool = false;

    /// Where the interrupted registers are, if the interrupted instruction is code of an entry stub. `None`: not known.
    /// The sample then has no callers and is marked as truncated.
    ///
    /// Runs in: NMI, if [`Kernel::is_entry_code`] returns `true` for `at.pc`.
    fn entry_frame(&self, at: &Registers) -> Option<EntryFrame> {
        let _ = at;
        None
    }

    /// For kernels whose entry stubs leave no marker word: where the interrupted registers are, for the stub that
    /// `return_address` lies in. `None`: not known; the stack is truncated there.
    ///
    /// Runs in: NMI, for return addresses for which [`Kernel::is_entry_code`] returns `true`. `frame_pointer` is the
    /// frame pointer of the function that the stub has called. It may be any value that the interrupted code kept in
    /// that register, so this function reads no memory: it returns addresses.
    fn caller_entry_frame(&self, return_address: u64, frame_pointer: u64) -> Option<CallerEntryFrame> {
        let _ = (return_address, frame_pointer);
        None
    }

    /// For kernels whose handlers are `extern "x86-interrupt"` functions: the one that `address` may belong to. Nobody
    /// knows where such a function ends, so the answer may be the same for the functions after it. kprof takes the code
    /// for an entry only if the words that the processor pushes are where a compiled entry has them.
    ///
    /// Runs in: NMI, for the interrupted instruction and each return address that is kernel code.
    /// `kprof_port::compiled` has the answer.
    #[inline(always)]
    fn compiled_entry(&self, address: u64) -> Option<CompiledEntry> {
        let _ = address;
        None
    }

    /// For kernels without frame pointers: the table that `kprof-fold tables` has made of this build
    /// (docs/no-frame-pointers.md). Every stack is walked by it then. With the default, nothing of it is compiled in.
    ///
    /// Runs in: NMI, once or twice for each sample.
    #[inline(always)]
    fn unwind_table(&self) -> Option<&UnwindTable> {
        None
    }

    /// For [`crate::Trigger::Published`]: the stacks of the other CPUs. With the default, `init` refuses that trigger,
    /// and nothing of it is compiled in.
    ///
    /// Runs in: the sampler CPU; `init`.
    #[inline(always)]
    fn foreign_stacks(&self) -> Option<&impl ForeignStacks> {
        None::<&NoForeignStacks>
    }

    /// Sleeps (`hlt`) for about `ns` nanoseconds by a one-shot timer. It may return earlier.
    ///
    /// Runs in: the sampler CPU, ordinary code. Must not spin: a spinning sampler slows the others by a third.
    fn sleep_ns(&self, ns: u64);

    /// Called when a ring is half full, or the meta stream a quarter: wake the readers that wait in `wait MS`.
    ///
    /// Runs in: the sampler CPU, ordinary code; with [`crate::Trigger::Timer`] the timer's interrupt. The default does
    /// nothing: the daemon polls.
    fn wake_reader(&self) {}
}

/// What only the trigger [`crate::Trigger::Published`] needs of a kernel, for [`Kernel::foreign_stacks`].
///
/// # Safety
/// [`ForeignStacks::read_foreign`] is sound for each aligned word of each range that
/// [`ForeignStacks::foreign_stack_range`] has ever returned for that CPU, also if the stack has since been unmapped or
/// put to another use.
pub unsafe trait ForeignStacks: Sync {
    /// As [`Kernel::stack_range`], for the stacks in use by another CPU.
    ///
    /// Runs in: the sampler CPU, while that CPU continues to run.
    fn foreign_stack_range(&self, cpu: usize, address: u64) -> Option<Range<u64>>;

    /// A word of another CPU's stack, or `None` if it cannot be read any more. It must not fault if the stack is
    /// unmapped meanwhile.
    ///
    /// Runs in: the sampler CPU.
    ///
    /// # Safety
    /// `address` is a multiple of 8, and the word lies in a range that [`ForeignStacks::foreign_stack_range`] has
    /// returned for `cpu`.
    unsafe fn read_foreign(&self, cpu: usize, address: u64) -> Option<u64>;
}

/// The answer of a kernel that gives none. There is no value of this type.
enum NoForeignStacks {}

// SAFETY: no range is ever returned, because there is no value to ask.
unsafe impl ForeignStacks for NoForeignStacks {
    fn foreign_stack_range(&self, _: usize, _: u64) -> Option<Range<u64>> {
        match *self {}
    }
    unsafe fn read_foreign(&self, _: usize, _: u64) -> Option<u64> {
        match *self {}
    }
}

/// An unwind table that was checked, for [`Kernel::unwind_table`].
pub type UnwindTable = crate::format::unwind::Table<'static>;

/// The task that runs on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// An id that no other task has ever had or will ever have.
    pub id: u64,
    /// Whether this task is the idle task of its CPU.
    pub idle: bool,
}

/// The interrupted registers, whatever the processor is. docs/porting.md says for each which they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// Program counter: the interrupted instruction.
    pub pc: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer, or any other value that the code keeps in its register.
    pub fp: u64,
    /// The register in which the processor leaves a return address: x30, ra; on x86_64 rcx, in which `syscall` leaves
    /// the user's. It may hold any other value too.
    pub link: u64,
    /// Whether user code was interrupted.
    pub from_user: bool,
    /// Whether interrupts were on (NMIs and their like do not count).
    pub interrupts_on: bool,
}

/// What an entry stub saved, in the kernel's own form. The usual sample needs only a few of the registers, and
/// only these are read then.
pub trait Interrupted {
    /// The registers. Runs in: NMI; should be inlined.
    fn registers(&self) -> Registers;

    /// Whether user code was interrupted. Runs in: NMI; should be inlined, and read only what it needs: what it reads
    /// besides stays in a register until the end of the walk.
    #[inline(always)]
    fn is_from_user(&self) -> bool {
        self.registers().from_user
    }

    /// 1 if interrupts were off, else 0; the other bits are ignored. Runs in: NMI; should be inlined. Where one bit of
    /// a saved word says it, shifting that bit down saves the handler ten instructions.
    #[inline(always)]
    fn interrupts_off(&self) -> u64 {
        u64::from(!self.registers().interrupts_on)
    }
}

impl Interrupted for Registers {
    #[inline(always)]
    fn registers(&self) -> Registers {
        *self
    }
}

/// Where the interrupted registers are at an instruction of an entry stub. Before the stub has set the frame pointer,
/// and after it has restored it, the frame pointer is that of the interrupted code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryFrame {
    /// The frame pointer is the stub's own: the marker word is on the stack, next to the interrupted code's frame
    /// pointer.
    Built,
    /// The frame pointer is not the stub's own, and what the entry has saved is on the stack, in the order of
    /// docs/porting-processors.md. (An address, because kprof then checks that a declared stack contains all of it.)
    OnStack {
        /// The kind of entry: [`Marker::Interrupt`], [`Marker::Exception`] or [`Marker::Syscall`].
        marker: Marker,
        /// The address of the lowest of the saved words, the interrupted program counter.
        saved_at: u64,
    },
    /// An entry from user code that has not yet saved the user's registers, or has restored them, and the kernel knows
    /// their values.
    InRegisters {
        /// The kind of entry.
        marker: Marker,
        /// The registers of the interrupted code.
        interrupted: Registers,
    },
}

/// An entry frame found by [`Kernel::caller_entry_frame`]: two addresses, which kprof reads only if a declared stack
/// contains the words there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerEntryFrame {
    /// Interrupt, exception or syscall.
    pub marker: Marker,
    /// The address of the lowest of the words that the entry has saved, the interrupted program counter.
    pub saved_at: u64,
    /// The address of the word that holds the interrupted code's frame pointer. If the stub does not change the frame
    /// pointer, the function that it has called saves it first: `frame_pointer`.
    pub fp_at: u64,
}

/// An entry that the compiler has made: an `extern "x86-interrupt"` function with a frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompiledEntry {
    /// Interrupt or exception.
    pub marker: Marker,
    /// Whether the processor pushes an error code for this vector.
    pub has_error_code: bool,
}

impl CompiledEntry {
    /// The entry of this vector, if its first bytes are those of a compiled function with a frame pointer. `None`: it
    /// is a stub in assembly, or kprof is off.
    pub fn of(vector: u8, code: &[u8; 8]) -> Option<Self> {
        #[cfg(feature = "profiling")]
        return crate::arch::compiled_entry::of(vector, code);
        #[cfg(not(feature = "profiling"))]
        {
            let _ = (vector, code);
            None
        }
    }
}

/// Where a CPU is, in one word, for [`crate::Trigger::Published`].
///
/// An entry is identified by its frame, which its stub leaves on the stack: the saved frame pointer, the marker, and
/// above them what the entry has saved (docs/porting-processors.md). The frame stays in place until the CPU publishes
/// another value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Published(u64);

/// The entry has been left.
const LEFT: u64 = 1;

impl Published {
    /// In the kernel, but not in an entry: a kernel thread, the idle loop.
    pub const THREAD: Self = Self(0);

    /// In the entry whose stub has this frame pointer, a multiple of 8.
    #[inline(always)]
    pub const fn entry(frame: u64) -> Self {
        Self(frame)
    }

    /// In user code, or about to return to it from that entry.
    #[inline(always)]
    pub const fn user(frame: u64) -> Self {
        Self(frame | LEFT)
    }

    /// Whether the CPU is in user code.
    #[inline(always)]
    pub const fn is_user(self) -> bool {
        self.0 & LEFT != 0
    }

    /// The address of the frame of the innermost entry. In user code: of the last entry, which has been left.
    #[inline(always)]
    pub const fn frame(self) -> Option<u64> {
        if self.0 == 0 { None } else { Some(self.0 & !LEFT) }
    }

    #[cfg(feature = "profiling")]
    #[inline(always)]
    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    #[cfg(feature = "profiling")]
    #[inline(always)]
    pub(crate) const fn from_word(word: u64) -> Self {
        Self(word)
    }
}

/// What became of an NMI or of a timer interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A sample was recorded in the ring.
    Sampled,
    /// A tick that was filtered: user code or the idle task.
    Filtered,
    /// A tick whose sample was lost; counted by reason.
    Lost,
    /// The profiler's NMI, but its tick was taken already, together with an earlier one. The kernel has nothing to do.
    Spurious,
    /// Not the profiler's NMI. The kernel may treat it as one from a watchdog, a button or a hardware error.
    Foreign,
}

/// A write to ctl that was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlDone {
    /// The write contained `wait MS`: let the writer sleep until [`crate::Profiler::reader_due`], or for this long, at
    /// most a minute. A signal ends the sleep, and the write still succeeds.
    pub wait_ms: Option<u64>,
    /// A process has claimed the streams or begun to read copies, and the meta stream may no longer have the records of
    /// all tasks and modules. Call [`crate::Profiler::task_name`] for each task that exists now, and
    /// [`crate::Profiler::image`] for each module.
    pub wants_names: bool,
    /// The times of tasks are asked for, up to now. Call `Events::task_times` of `kprof-events` for each task that
    /// exists, if the kernel keeps a `TaskTimes` for each.
    pub wants_times: bool,
}

/// What [`crate::Profiler::on_timer`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerTick {
    /// What became of the timer interrupt; [`Outcome::Foreign`]: no tick was due.
    pub outcome: Outcome,
    /// The time from now until the next tick is due. The next timer interrupt should come about then; a later one is
    /// harmless.
    pub next_ns: u64,
}

/// What [`crate::Profiler::on_overflow`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverflowTick {
    /// What became of the interrupt; [`Outcome::Foreign`]: sampling is stopped, or no event is chosen.
    pub outcome: Outcome,
    /// After how many events the counter must overflow next; never 0.
    pub next_events: u64,
}

/// A code image: the kernel or a loaded module.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// The name of the image; for the kernel `kernel`.
    pub name: &'a str,
    /// Where it is loaded.
    pub load: u64,
    /// Its code.
    pub text: (u64, u64),
    /// The build id from its ELF note, or empty.
    pub build_id: &'a [u8],
}

/// Proof of being in an NMI (or the sampling interrupt) entered by this CPU's stub.
#[derive(Debug)]
pub struct NmiToken(PhantomData<*mut ()>);

impl NmiToken {
    /// Makes the proof. Only the Rust half of the entry stub may call this.
    ///
    /// # Safety
    /// The caller runs in the NMI (or sampling interrupt) handler whose interrupted registers it passes along, on its
    /// own stack, and the interrupted code does not run before the token is dropped.
    #[inline]
    pub const unsafe fn new() -> Self {
        Self(PhantomData)
    }
}

/// What a breakpoint exception has interrupted, for a probe at its address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breakpoint {
    /// The program counter that the processor has saved: the address after the `int3`.
    pub pc: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer.
    pub fp: u64,
}
