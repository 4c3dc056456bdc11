//! A thread: a kernel stack, saved registers, and the process it runs for, if any.
//!
//! The head of each stack has the pointer to its thread. Ids of threads and of tasks (for the profiler) are never used
//! twice. The switch itself is here; the scheduler decides which thread runs next.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::arch::{asm, naked_asm};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use x86_64::VirtAddr;
use x86_64::instructions::interrupts;
use x86_64::registers::model_specific::FsBase;

use super::process::{self, Process};
use super::scheduler;
use crate::cpu::entry::TrapFrame;
use crate::cpu::{self, gdt};
use crate::memory::{paging, stacks};
use crate::wait::Doing;
use crate::{preempt, profiling};

/// The state that `fxsave64` writes.
#[repr(C, align(16))]
pub struct FxState(pub [u8; 512]);

impl FxState {
    /// The state a program starts with: all exceptions masked, round to nearest (System V ABI, 3.4.1).
    pub const fn new() -> Self {
        let mut state = [0; 512];
        state[0] = 0x7f;
        state[1] = 0x03;
        state[24] = 0x80;
        state[25] = 0x1f;
        Self(state)
    }

    /// Reads the registers.
    pub fn save(&mut self) {
        // SAFETY: 512 bytes, aligned to 16.
        unsafe { asm!("fxsave64 [{}]", in(reg) self.0.as_mut_ptr(), options(nostack)) }
    }

    /// Writes the registers.
    pub fn restore(&self) {
        // SAFETY: 512 bytes, aligned to 16; only states from `new`, `save` and checked user data get here.
        unsafe { asm!("fxrstor64 [{}]", in(reg) self.0.as_ptr(), options(nostack)) }
    }
}

/// A thread.
#[repr(C)]
pub struct Thread {
    /// The count of reasons not to switch away. It is the first field, because a stack's head points to it.
    preempt: preempt::Count,
    /// Its number; never used twice.
    pub id: u64,
    /// Its task id for the profiler. A thread that starts another program becomes a new task.
    task: AtomicU64,
    /// The process for which it runs; `None` for kernel threads.
    pub process: Option<Arc<Process>>,
    /// Whether it is the idle thread of its CPU.
    pub is_idle: bool,
    /// The key of the wait queue where it waits (see `waiting.rs`); protected by the scheduler's lock.
    pub waiting_on: AtomicUsize,
    /// When its wait ends at the latest; protected by the scheduler's lock.
    pub deadline_ns: AtomicU64,
    /// Whether it waits; protected by the scheduler's lock.
    pub blocked: AtomicBool,
    /// The number of the reason why it waits; protected by the scheduler's lock.
    pub waits_for: AtomicU8,
    /// What it does with its time, for the profiler.
    pub times: profiling::TaskTimes,
    /// The base of the user's thread-local storage.
    pub fs_base: AtomicU64,
    /// Whether it has user state. False for kernel threads, and after its process has freed its memory.
    has_user: AtomicBool,
    stack: u64,
    saved_rsp: UnsafeCell<u64>,
    fx: UnsafeCell<FxState>,
    start: UnsafeCell<Option<Body>>,
}

/// What a new thread does first, in the kernel.
pub type Body = Box<dyn FnOnce() -> Next + Send>;

/// What a thread does after its body.
pub enum Next {
    /// It ends.
    End,
    /// It switches to user mode with these registers. (They are returned by value, so that they are on its own stack.)
    User(TrapFrame),
}

static_assertions::const_assert_eq!(core::mem::offset_of!(Thread, preempt), 0);

// SAFETY: the cells are only used by the thread itself, or by the CPU that switches to or from it, which holds the
// scheduler's lock.
unsafe impl Send for Thread {}
// SAFETY: as above.
unsafe impl Sync for Thread {}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Thread {
    fn new(process: Option<Arc<Process>>, stack: u64, is_idle: bool) -> Self {
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let times = if is_idle { profiling::TaskTimes::idle() } else { profiling::TaskTimes::new() };
        profiling::task_created(&times);
        Self {
            preempt: preempt::Count::new(),
            id,
            task: AtomicU64::new(id),
            has_user: AtomicBool::new(process.is_some()),
            process,
            is_idle,
            waiting_on: AtomicUsize::new(0),
            deadline_ns: AtomicU64::new(0),
            blocked: AtomicBool::new(false),
            waits_for: AtomicU8::new(0),
            times,
            fs_base: AtomicU64::new(0),
            stack,
            saved_rsp: UnsafeCell::new(0),
            fx: UnsafeCell::new(FxState::new()),
            start: UnsafeCell::new(None),
        }
    }

    /// Creates a thread with its own stack, which runs `body` when the scheduler chooses it.
    pub fn spawn(name: &str, process: Option<Arc<Process>>, body: Body) -> Arc<Self> {
        let stack = stacks::allocate();
        let mut thread = Self::new(process, stack, false);
        *thread.start.get_mut() = Some(body);
        let top = stack + stacks::STACK_BYTES - stacks::HEAD_BYTES;
        // `switch_stacks` pops six registers and then the return address. The 0 above them ends a stack walk.
        let frame = (top - 64) as *mut u64;
        // SAFETY: the new stack is mapped, and no other code uses it.
        unsafe {
            for register in 0..6 {
                frame.add(register).write(0);
            }
            frame.add(6).write(thread_start as *const () as u64);
            frame.add(7).write(0);
        }
        *thread.saved_rsp.get_mut() = frame as u64;
        let thread = Arc::new(thread);
        thread.put_in_head();
        profiling::name_task(thread.id, name);
        thread
    }

    /// Makes the running code, whose stack begins at `stack`, the idle thread of this CPU.
    pub fn adopt_idle(stack: u64, name: &str) -> Arc<Self> {
        let thread = Arc::new(Self::new(None, stack, true));
        thread.put_in_head();
        profiling::name_task(thread.id, name);
        let cpu = cpu::this();
        cpu.stacks[0].store(stack, Ordering::Relaxed);
        cpu.stacks[1].store(stack, Ordering::Relaxed);
        cpu.task.store(thread.id, Ordering::Relaxed);
        thread
    }

    fn put_in_head(self: &Arc<Self>) {
        let head = (self.stack + stacks::STACK_BYTES - 8) as *mut *const Self;
        // SAFETY: this is the head of the thread's own stack.
        unsafe { head.write_volatile(Arc::as_ptr(self)) };
    }

    /// Makes it a kernel thread, because its process is about to free its memory.
    pub fn leave_user(&self) {
        self.has_user.store(false, Ordering::Relaxed);
    }

    /// Copies the vector registers and thread-local storage of `parent`, which is the running thread (fork).
    pub fn copy_user_state(&self, parent: &Self) {
        self.fs_base.store(parent.fs_base.load(Ordering::Relaxed), Ordering::Relaxed);
        // SAFETY: the parent runs, so its vector registers are live; `self` does not run yet.
        unsafe { (*self.fx.get()).save() };
    }

    /// The process in whose address space the thread runs.
    fn user(&self) -> Option<&Arc<Process>> {
        self.process.as_ref().filter(|_| self.has_user.load(Ordering::Relaxed))
    }

    /// Its task id for the profiler, which changes when it starts another program.
    pub fn task(&self) -> u64 {
        self.task.load(Ordering::Relaxed)
    }

    /// The top of its kernel stack, which entries from user mode use first.
    pub fn stack_top(&self) -> u64 {
        self.stack + stacks::STACK_BYTES - stacks::HEAD_BYTES
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        profiling::forget_task(self.task.load(Ordering::Relaxed));
        // SAFETY: this is the head of the stack, on which no code runs any more.
        unsafe { ((self.stack + stacks::STACK_BYTES - 8) as *mut u64).write_volatile(0) };
        if self.stack != stacks::boot_stack() {
            stacks::free(self.stack);
        }
    }
}

/// The running thread; `None` before the scheduler is set up. It must not be called in an NMI, which has its own stack.
#[inline(always)]
pub fn current() -> Option<&'static Thread> {
    let rsp: u64;
    // SAFETY: this only reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) rsp, options(nomem, nostack, preserves_flags)) };
    let head = (rsp & !(stacks::STACK_BYTES - 1)) + stacks::STACK_BYTES - 8;
    // SAFETY: every kernel stack is aligned to its size and has the pointer, or 0, in its head. The thread exists at
    // least as long as it runs, and the reference is not kept longer.
    unsafe { (*(head as *const *const Thread)).as_ref() }
}

/// The running thread as a counted reference.
pub fn current_arc() -> Arc<Thread> {
    let thread: *const Thread = current().expect("no thread runs yet");
    // SAFETY: the pointer in the head came from an Arc that the scheduler still holds.
    unsafe {
        Arc::increment_strong_count(thread);
        Arc::from_raw(thread)
    }
}

/// Switches from `from` to `to` on this CPU. The scheduler's lock is held and interrupts are off. Returns when `from`
/// runs again, perhaps on another CPU.
#[inline(never)]
pub fn switch(from: &Thread, to: &Thread) {
    let this = cpu::this();
    let id = cpu::id();
    if from.user().is_some() {
        // SAFETY: `from` is the running thread, so its state is in the registers.
        unsafe { (*from.fx.get()).save() };
    }
    this.stacks[1].store(to.stack, Ordering::Relaxed);
    gdt::set_kernel_stack(id, to.stack_top());
    match to.user() {
        Some(process) => {
            // SAFETY: `to` is not running on any CPU, so its saved state is complete.
            unsafe { (*to.fx.get()).restore() };
            FsBase::write(VirtAddr::new(to.fs_base.load(Ordering::Relaxed)));
            paging::load(process.space().tables());
        }
        None if from.process.is_some() => paging::load(paging::boot_tables()),
        None => {}
    }
    this.idle.store(to.is_idle, Ordering::Relaxed);
    let before = profiling::switch_to(to.task.load(Ordering::Relaxed), to.is_idle);
    // SAFETY: both stack pointers are those of `switch_stacks` or of a new thread's frame.
    unsafe {
        switch_stacks(from.saved_rsp.get(), *to.saved_rsp.get(), this.task.as_ptr(), to.task.load(Ordering::Relaxed))
    };
    // On `from`'s stack again, perhaps much later and on another CPU.
    profiling::publish_again(before);
    let this = cpu::this();
    this.stacks[0].store(from.stack, Ordering::Relaxed);
}

/// Saves the callee-saved registers, changes the stack, and writes the new task id in the next instruction.
#[unsafe(naked)]
unsafe extern "C" fn switch_stacks(save: *mut u64, rsp: u64, task: *mut u64, id: u64) {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "mov [rdx], rcx",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Where a new thread starts after the first switch to it.
extern "C" fn thread_start() -> ! {
    let thread = current().expect("a thread runs here");
    cpu::this().stacks[0].store(thread.stack, Ordering::Relaxed);
    scheduler::finish_switch();
    profiling::task_resumed(&thread.times);
    interrupts::enable();
    run(thread)
}

/// Runs the body of a new thread. It is separate from `thread_start`, so that a copy (`memcpy`) made here is never the
/// root of a sample.
#[inline(never)]
fn run(thread: &Thread) -> ! {
    // SAFETY: taken once, by the thread itself.
    let body = unsafe { (*thread.start.get()).take() };
    match body.map_or(Next::End, |body| body()) {
        Next::End => scheduler::exit(),
        Next::User(frame) => process::run_user(&frame),
    }
}

/// Starts a kernel thread.
pub fn spawn_kernel(name: &str, body: impl FnOnce() + Send + 'static) {
    let body = || {
        body();
        Next::End
    };
    scheduler::make_ready(Thread::spawn(name, None, Box::new(body)));
}

/// Makes the running thread a new task with this name, because it starts another program.
pub fn rename_current(name: &str) {
    let Some(thread) = current() else { return };
    let task = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    profiling::name_task(task, name);
    profiling::task_times(thread.task(), &thread.times, Doing::Running);
    profiling::forget_task(thread.task.swap(task, Ordering::Relaxed));
    interrupts::without_interrupts(|| {
        let before = profiling::switch_to(task, false);
        profiling::publish_again(before);
        cpu::this().task.store(task, Ordering::Relaxed);
    });
}
