//! Processes. Each has one thread, an address space, open files, and a parent that can wait for its end.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::signal::{self, Signals};
use super::thread::{self, Next, Thread};
use super::{exec, scheduler};
use crate::cpu::entry::{self, TrapFrame};
use crate::errno::{Errno, Result};
use crate::fs::file::FileTable;
use crate::lock::Lock;
use crate::memory::paging;
use crate::memory::space::AddressSpace;
use crate::profiling;
use crate::wait::{Reason, WaitQueue, Wakeup};
use kprof::format::marker::Marker;

/// A process.
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The number of its process group.
    pub group: AtomicU32,
    /// Open files.
    pub files: Lock<FileTable>,
    /// Current folder, absolute.
    pub folder: Lock<String>,
    /// Path of the running program.
    pub program: Lock<String>,
    /// File creation mask.
    pub umask: AtomicU32,
    /// Signals.
    pub signals: Signals,
    /// End of the heap (`brk`) and its start.
    pub brk: AtomicU64,
    /// Start of the heap.
    pub brk_start: AtomicU64,
    parent: AtomicU32,
    space: Lock<Option<Arc<AddressSpace>>>,
    thread: Lock<Weak<Thread>>,
    children: Lock<Vec<Arc<Process>>>,
    /// Wait status once it has ended; [`RUNNING`] before.
    status: AtomicU32,
    /// Woken when a child ends, and when a vfork child no longer needs its parent's memory.
    changed: WaitQueue,
    holds_parent: AtomicBool,
}

const RUNNING: u32 = u32::MAX;
static NEXT_PID: AtomicU32 = AtomicU32::new(1);
static PROCESSES: Lock<Vec<Weak<Process>>> = Lock::new(Vec::new());

/// The process of the running thread.
pub fn current() -> Option<&'static Arc<Process>> {
    thread::current()?.process.as_ref()
}

/// The process with this number.
pub fn find(pid: u32) -> Option<Arc<Process>> {
    PROCESSES.lock().iter().filter_map(Weak::upgrade).find(|process| process.pid == pid)
}

impl Process {
    fn new(parent: u32, space: Arc<AddressSpace>) -> Self {
        let pid = NEXT_PID.fetch_add(1, Ordering::Relaxed);
        Self {
            pid,
            group: AtomicU32::new(pid),
            files: Lock::new(FileTable::new()),
            folder: Lock::new(String::from("/")),
            program: Lock::new(String::new()),
            umask: AtomicU32::new(0o022),
            signals: Signals::new(),
            brk: AtomicU64::new(0),
            brk_start: AtomicU64::new(0),
            parent: AtomicU32::new(parent),
            space: Lock::new(Some(space)),
            thread: Lock::new(Weak::new()),
            children: Lock::new(Vec::new()),
            status: AtomicU32::new(RUNNING),
            changed: WaitQueue::new(Reason::Child),
            holds_parent: AtomicBool::new(false),
        }
    }

    /// The address space.
    ///
    /// # Panics
    /// If the process has ended. No code runs in it then.
    pub fn space(&self) -> Arc<AddressSpace> {
        self.space.lock().clone().expect("the process has ended")
    }

    /// Replaces the address space (exec). From here on the caller runs in the new one.
    pub fn set_space(&self, space: Arc<AddressSpace>) {
        let tables = space.tables();
        let old = self.space.lock().replace(space);
        paging::load(tables);
        drop(old);
        self.release_parent();
    }

    /// The number of the parent.
    pub fn parent(&self) -> u32 {
        self.parent.load(Ordering::Relaxed)
    }

    /// The thread, if it still exists.
    pub fn thread(&self) -> Option<Arc<Thread>> {
        self.thread.lock().upgrade()
    }

    fn release_parent(&self) {
        if self.holds_parent.swap(false, Ordering::Release)
            && let Some(parent) = find(self.parent())
        {
            parent.changed.wake();
        }
    }

    fn register(self: &Arc<Self>) {
        let mut processes = PROCESSES.lock();
        processes.retain(|process| process.strong_count() > 0);
        processes.push(Arc::downgrade(self));
    }
}

/// Starts the first process from the program at `path`.
///
/// # Errors
/// As `execve`.
pub fn spawn_init(path: &str, arguments: Vec<String>, environment: Vec<String>) -> Result<Arc<Process>> {
    let space = Arc::new(AddressSpace::new().ok_or(Errno::ENOMEM)?);
    let process = Arc::new(Process::new(0, space));
    process.files.lock().open_console();
    process.register();
    let path = String::from(path);
    let thread = Thread::spawn(
        "init",
        Some(process.clone()),
        Box::new(move || {
            // What `execve` leaves to the stub of a system call.
            let mut frame = TrapFrame { marker: Marker::Syscall.encode(), ..TrapFrame::default() };
            match exec::replace(&path, arguments, environment, &mut frame) {
                Ok(()) => Next::User(frame),
                Err(error) => panic!("init {path} cannot be started: {error:?}"),
            }
        }),
    );
    *process.thread.lock() = Arc::downgrade(&thread);
    scheduler::make_ready(thread);
    Ok(process)
}

/// Switches to user mode for the first time. `frame` must be on the running stack.
pub fn run_user(frame: &TrapFrame) -> ! {
    x86_64::instructions::interrupts::disable();
    profiling::leave(frame, profiling::Published::THREAD);
    // SAFETY: the frame describes user code of the process whose space is loaded; interrupts are off.
    unsafe { entry::enter_user(frame) }
}

/// How a new process relates to its parent.
pub struct Fork {
    /// Both use one address space until the child execs or ends; the parent waits for that.
    pub share_memory: bool,
    /// The child's stack pointer; 0 = the parent's.
    pub stack: u64,
    /// Where the child writes its number in its own memory; 0 = nowhere.
    pub child_tid: u64,
}

/// Creates a child, which returns from the same system call with 0. Returns the child's number.
///
/// # Errors
/// ENOMEM.
#[inline(never)]
pub fn fork(frame: &TrapFrame, how: &Fork) -> Result<u32> {
    let parent = current().ok_or(Errno::ESRCH)?;
    let space = match how.share_memory {
        true => parent.space(),
        false => Arc::new(parent.space().fork().ok_or(Errno::ENOMEM)?),
    };
    let child = Arc::new(Process::new(parent.pid, space));
    child.group.store(parent.group.load(Ordering::Relaxed), Ordering::Relaxed);
    child.umask.store(parent.umask.load(Ordering::Relaxed), Ordering::Relaxed);
    child.brk.store(parent.brk.load(Ordering::Relaxed), Ordering::Relaxed);
    child.brk_start.store(parent.brk_start.load(Ordering::Relaxed), Ordering::Relaxed);
    *child.folder.lock() = parent.folder.lock().clone();
    let program = parent.program.lock().clone();
    *child.program.lock() = program.clone();
    *child.files.lock() = parent.files.lock().clone();
    child.signals.inherit(&parent.signals);
    child.holds_parent.store(how.share_memory, Ordering::Relaxed);
    child.register();
    parent.children.lock().push(child.clone());

    let mut child_frame = *frame;
    child_frame.rax = 0;
    if how.stack != 0 {
        child_frame.rsp = how.stack;
    }
    let (pid, child_tid) = (child.pid, how.child_tid);
    let body = Box::new(move || {
        if child_tid != 0 {
            // As on Linux, an error because of a bad address is ignored.
            let _ = crate::memory::user::write(child_tid, &pid.to_le_bytes());
        }
        Next::User(child_frame)
    });
    let thread = Thread::spawn(exec::short_name(&program), Some(child.clone()), body);
    thread.copy_user_state(thread::current().ok_or(Errno::ESRCH)?);
    *child.thread.lock() = Arc::downgrade(&thread);
    scheduler::make_ready(thread);
    if how.share_memory {
        parent.changed.wait(|| !child.holds_parent.load(Ordering::Acquire));
        // If the child was over before this wait, no switch has flushed the TLB of this CPU, which then still allows
        // writes to pages that the child's own fork has made copy-on-write.
        paging::load(parent.space().tables());
    }
    Ok(pid)
}

/// Ends the running process with this wait status. Does not return.
#[inline(never)]
pub fn exit(status: u32) -> ! {
    {
        let process = current().expect("only processes exit");
        assert_ne!(process.pid, 1, "init has ended, wait status {status:#x}");
        let files = core::mem::replace(&mut *process.files.lock(), FileTable::new());
        drop(files);
        let orphans = core::mem::take(&mut *process.children.lock());
        if let Some(init) = find(1) {
            for orphan in &orphans {
                orphan.parent.store(1, Ordering::Relaxed);
            }
            init.children.lock().extend(orphans);
            init.changed.wake();
        }
        // The thread first becomes a kernel thread, and then the tables are changed. In the other order, a switch in
        // between would load the old tables again, which are about to be freed.
        thread::current().expect("a thread runs").leave_user();
        paging::load(paging::boot_tables());
        let space = process.space.lock().take();
        drop(space);
        process.status.store(status, Ordering::Release);
        process.release_parent();
        if let Some(parent) = find(process.parent()) {
            signal::send(&parent, signal::SIGCHLD);
            parent.changed.wake();
        }
    }
    scheduler::exit()
}

/// Which children a wait is for.
#[derive(Clone, Copy)]
pub enum Which {
    /// Any.
    Any,
    /// The one with this number.
    Pid(u32),
    /// Those of this group.
    Group(u32),
}

/// Waits until a child has ended and removes it. Returns its number and wait status; `None` if no child has ended and
/// `block` is false.
///
/// # Errors
/// ECHILD if there is no such child, EINTR if a signal is pending.
#[inline(never)]
pub fn wait(which: Which, block: bool) -> Result<Option<(u32, u32)>> {
    let process = current().ok_or(Errno::ECHILD)?;
    let fits = |child: &Process| match which {
        Which::Any => true,
        Which::Pid(pid) => child.pid == pid,
        Which::Group(group) => child.group.load(Ordering::Relaxed) == group,
    };
    loop {
        let watched: Vec<Arc<Process>> = {
            let mut children = process.children.lock();
            if !children.iter().any(|child| fits(child)) {
                return Err(Errno::ECHILD);
            }
            let ended = children.iter().position(|child| fits(child) && child.has_ended());
            if let Some(index) = ended {
                let child = children.remove(index);
                return Ok(Some((child.pid, child.status.load(Ordering::Acquire))));
            }
            children.iter().filter(|child| fits(child)).cloned().collect()
        };
        if !block {
            return Ok(None);
        }
        if process.changed.wait_interruptible(|| watched.iter().any(|child| child.has_ended())) == Wakeup::Interrupted {
            return Err(Errno::EINTR);
        }
    }
}

impl Process {
    fn has_ended(&self) -> bool {
        self.status.load(Ordering::Acquire) != RUNNING
    }

    /// Whether it still runs. Signals are only sent to processes that do.
    pub fn is_alive(&self) -> bool {
        !self.has_ended()
    }
}

/// All processes that have not ended.
pub fn all() -> Vec<Arc<Process>> {
    PROCESSES.lock().iter().filter_map(Weak::upgrade).filter(|process| process.is_alive()).collect()
}

/// The processes of a group.
pub fn in_group(group: u32) -> Vec<Arc<Process>> {
    all().into_iter().filter(|process| process.group.load(Ordering::Relaxed) == group).collect()
}
