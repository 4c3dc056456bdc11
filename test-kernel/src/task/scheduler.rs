//! The scheduler: one queue of ready threads for all CPUs, time slices, sleeping, an idle thread per CPU that halts.
//!
//! One lock protects it, with interrupts off. The lock is held across a switch and released by the thread that runs
//! next. At every switch the one-shot timer of the CPU is set to the end of the slice or to the next sleeper, whichever
//! is first. On an idle CPU without sleepers no timer is running. The sampler CPU never calls the scheduler.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use x86_64::instructions::interrupts;

use super::thread::{self, Thread};
use super::waiting;
use crate::cpu::{self, CPUS, MAX_CPUS, apic, clock};
use crate::lock::{IrqGuard, IrqLock};
use crate::profiling::RawKernelLock;
use crate::wait::Doing;
use crate::{preempt, profiling, wait};

const SLICE_NS: u64 = 10_000_000;

/// The data that the lock protects.
pub struct Scheduler {
    ready: VecDeque<Arc<Thread>>,
    /// Waiting threads by the key of their wait queue.
    pub(super) waiting: BTreeMap<usize, Vec<Arc<Thread>>>,
    /// Waiting threads with a deadline, by deadline and id.
    pub(super) sleepers: BTreeMap<(u64, u64), Arc<Thread>>,
    running: [Option<Arc<Thread>>; MAX_CPUS],
    idle: [Option<Arc<Thread>>; MAX_CPUS],
    /// The thread that has just ended. Its stack can be freed as soon as another thread runs.
    dead: Option<Arc<Thread>>,
}

/// The scheduler.
pub static SCHEDULER: IrqLock<Scheduler, RawKernelLock> = IrqLock::new(Scheduler {
    ready: VecDeque::new(),
    waiting: BTreeMap::new(),
    sleepers: BTreeMap::new(),
    running: [const { None }; MAX_CPUS],
    idle: [const { None }; MAX_CPUS],
    dead: None,
});

/// Makes the running code the idle thread of this CPU. Called once per CPU, before `idle_forever`.
pub fn adopt(stack: u64, name: &str) {
    preempt::install(yield_now);
    wait::install(wait::Scheduler { wait: waiting::wait, wake: waiting::wake });
    let thread = Thread::adopt_idle(stack, name);
    let mut scheduler = SCHEDULER.lock();
    scheduler.idle[cpu::id()] = Some(thread.clone());
    scheduler.running[cpu::id()] = Some(thread);
}

/// Puts a thread into the ready queue, and wakes a halted CPU if there is one.
pub fn make_ready(thread: Arc<Thread>) {
    SCHEDULER.lock().push_ready(thread);
}

impl Scheduler {
    /// As [`make_ready`], with the lock already held.
    pub fn push_ready(&mut self, thread: Arc<Thread>) {
        // A thread whose wait ends before it has left its CPU was never blocked.
        if !self.running[cpu::id()].as_ref().is_some_and(|running| Arc::ptr_eq(running, &thread)) {
            profiling::task_woken(&thread.times);
        }
        self.ready.push_back(thread);
        let halted = CPUS[..cpu::count()].iter().find(|cpu| {
            cpu.schedules.load(Ordering::Relaxed)
                && cpu.halted.load(Ordering::Relaxed)
                && cpu.halted.compare_exchange(true, false, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        });
        if let Some(cpu) = halted {
            apic::send_ipi(cpu.apic_id.load(Ordering::Relaxed), apic::RESCHEDULE);
        }
    }

    /// Ends the wait of a thread, for whatever it is waiting. Returns false if it is not waiting.
    pub fn end_wait(&mut self, thread: &Arc<Thread>) -> bool {
        if !thread.blocked.swap(false, Ordering::Relaxed) {
            return false;
        }
        self.sleepers.remove(&(thread.deadline_ns.load(Ordering::Relaxed), thread.id));
        let key = thread.waiting_on.load(Ordering::Relaxed);
        if let Some(threads) = self.waiting.get_mut(&key) {
            threads.retain(|other| !Arc::ptr_eq(other, thread));
            if threads.is_empty() {
                self.waiting.remove(&key);
            }
        }
        self.push_ready(thread.clone());
        true
    }

    fn wake_sleepers(&mut self) {
        let now = clock::now_ns();
        while let Some(entry) = self.sleepers.first_entry()
            && entry.key().0 <= now
        {
            let thread = entry.get().clone();
            self.end_wait(&thread);
        }
    }

    /// Sets this CPU's timer to the first of: the end of its slice, the next sleeper, its next sample of itself.
    fn set_timer(&self) {
        let cpu = cpu::this();
        let sleeper = self.sleepers.first_key_value().map_or(u64::MAX, |(key, _)| key.0);
        let self_tick = cpu.timer_interval_ns.load(Ordering::Relaxed);
        match cpu.slice_end_ns.load(Ordering::Relaxed).min(sleeper).min(self_tick) {
            u64::MAX => apic::start_timer(0),
            at => clock::start_timer_ns(at.saturating_sub(clock::now_ns())),
        }
    }
}

/// Handles the timer of this CPU. Runs in: interrupt.
#[inline(never)]
pub fn on_timer() {
    let mut scheduler = SCHEDULER.lock();
    scheduler.wake_sleepers();
    let cpu = cpu::this();
    if clock::now_ns() >= cpu.slice_end_ns.load(Ordering::Relaxed) || cpu.idle.load(Ordering::Relaxed) {
        cpu.need_resched.store(true, Ordering::Relaxed);
        // The switch will set the next end. Until then the old one must not fire the timer again and again.
        cpu.slice_end_ns.store(u64::MAX, Ordering::Relaxed);
    }
    scheduler.set_timer();
}

/// Gives the CPU to another ready thread, if there is one; the caller stays ready.
#[inline(never)]
pub fn yield_now() {
    let scheduler = SCHEDULER.lock();
    // The timer, or a thread that was woken, has asked for it; or the thread itself.
    let is_asked = cpu::this().need_resched.load(Ordering::Relaxed);
    switch(scheduler, if is_asked { Doing::Preempted } else { Doing::Yielded });
}

/// Switches away from the running thread, which other code will make ready. The lock's guard is handed over.
pub(super) fn block(scheduler: IrqGuard<'_, Scheduler, RawKernelLock>) {
    let me = thread::current().expect("a thread runs here");
    // A sleeper whose time has come is woken in the switch itself.
    switch(scheduler, Doing::Blocked(me.waits_for.load(Ordering::Relaxed)));
}

#[inline(never)]
fn switch(mut scheduler: IrqGuard<'_, Scheduler, RawKernelLock>, becomes: Doing) {
    let cpu = cpu::id();
    CPUS[cpu].need_resched.store(false, Ordering::Relaxed);
    scheduler.wake_sleepers();
    let from = scheduler.running[cpu].take().expect("every CPU runs a thread");
    if matches!(becomes, Doing::Preempted | Doing::Yielded) && !from.is_idle {
        scheduler.ready.push_back(from.clone());
    }
    let to = match scheduler.ready.pop_front() {
        Some(thread) => thread,
        None => scheduler.idle[cpu].clone().expect("every CPU has an idle thread"),
    };
    scheduler.running[cpu] = Some(to.clone());
    let slice_end = if to.is_idle { u64::MAX } else { clock::now_ns() + SLICE_NS };
    CPUS[cpu].slice_end_ns.store(slice_end, Ordering::Relaxed);
    scheduler.set_timer();
    if Arc::ptr_eq(&from, &to) {
        return;
    }
    profiling::count_context_switch();
    let was_woken = matches!(becomes, Doing::Blocked(_)) && !from.blocked.load(Ordering::Relaxed);
    profiling::task_switched(&from.times, &to.times, if was_woken { Doing::Woken } else { becomes });
    count_idle(&from, &to);
    // The queues and `running` keep both threads alive. References on the stack of a thread that has ended would never
    // be dropped, so they are dropped here.
    let (from_ptr, to_ptr) = (Arc::as_ptr(&from), Arc::as_ptr(&to));
    drop((from, to));
    let interrupts_were_on = IrqGuard::hand_over(scheduler);
    // SAFETY: `to` is in `running`. `from` is in a queue or in `dead`, is waiting, or is an idle thread.
    unsafe { thread::switch(&*from_ptr, &*to_ptr) };
    finish_switch();
    // SAFETY: this is the running thread again, so the scheduler holds it.
    profiling::task_resumed(unsafe { &(*from_ptr).times });
    if interrupts_were_on {
        interrupts::enable();
    }
}

/// Adds up how long the idle thread of this CPU runs.
fn count_idle(from: &Thread, to: &Thread) {
    let (cpu, now_ns) = (cpu::this(), clock::now_ns());
    if from.is_idle {
        cpu.idle_ns.fetch_add(now_ns - cpu.idle_since_ns.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
    if to.is_idle {
        cpu.idle_since_ns.store(now_ns, Ordering::Relaxed);
    }
}

/// Called first after a switch. Releases the lock that the previous thread has taken, and drops that thread if it has
/// ended.
pub(super) fn finish_switch() {
    // SAFETY: the thread that has switched to this one has taken the lock and handed it over.
    let mut scheduler = unsafe { SCHEDULER.adopt() };
    let dead = scheduler.dead.take();
    drop(scheduler);
    if let Some(dead) = dead {
        profiling::task_times(dead.task(), &dead.times, Doing::Ended);
    }
}

/// Calls `each` for every thread, with what it does. Threads that end or begin meanwhile may be missing.
pub fn for_each_thread(mut each: impl FnMut(&Thread, Doing)) {
    let mut all = Vec::new();
    {
        let scheduler = SCHEDULER.lock();
        let blocked = |thread: &Arc<Thread>| Doing::Blocked(thread.waits_for.load(Ordering::Relaxed));
        // The sampler CPU runs no threads.
        let of_cpus = |threads: &[Option<Arc<Thread>>; MAX_CPUS]| -> Vec<Arc<Thread>> {
            let of_cpu =
                |(cpu, thread): (usize, &Option<Arc<Thread>>)| thread.clone().filter(|_| Some(cpu) != cpu::sampler());
            threads.iter().enumerate().filter_map(of_cpu).collect()
        };
        let (running, mut idle) = (of_cpus(&scheduler.running), of_cpus(&scheduler.idle));
        idle.retain(|thread| !running.iter().any(|one| Arc::ptr_eq(one, thread)));
        all.extend(running.into_iter().map(|thread| (thread, Doing::Running)));
        all.extend(idle.iter().chain(&scheduler.ready).map(|thread| (thread.clone(), Doing::Preempted)));
        all.extend(scheduler.waiting.values().flatten().map(|thread| (thread.clone(), blocked(thread))));
    }
    all.iter().for_each(|(thread, doing)| each(thread, *doing));
}

/// Ends the running thread.
pub fn exit() -> ! {
    let mut scheduler = SCHEDULER.lock();
    scheduler.dead = Some(thread::current_arc());
    switch(scheduler, Doing::Ended);
    unreachable!("a dead thread ran");
}

/// The idle thread: halts until an interrupt makes a thread ready.
pub fn idle_forever() -> ! {
    cpu::this().schedules.store(true, Ordering::Relaxed);
    cpu::this().idle_since_ns.store(clock::now_ns(), Ordering::Relaxed);
    SCHEDULER.lock().set_timer();
    publish_idle();
    loop {
        interrupts::disable();
        let scheduler = SCHEDULER.lock();
        if scheduler.ready.is_empty() && !cpu::this().need_resched.load(Ordering::Relaxed) {
            // This is set under the lock. Code that makes a thread ready after this sends an interrupt, which ends the
            // `hlt`.
            cpu::this().halted.store(true, Ordering::Relaxed);
            drop(scheduler);
            halt();
            cpu::this().halted.store(false, Ordering::Relaxed);
        } else {
            drop(scheduler);
            interrupts::enable();
            yield_now();
        }
    }
}

/// Publishes the running task for the first time. From now on every switch does this.
fn publish_idle() {
    if let Some(thread) = thread::current() {
        // Nothing was published before, so the previous place is not needed.
        let _ = interrupts::without_interrupts(|| profiling::switch_to(thread.id, true));
    }
}

#[inline(never)]
fn halt() {
    interrupts::enable_and_hlt();
}
