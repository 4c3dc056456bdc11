//! The points of system calls: how long each one took, by its number.
//!
//! In: two calls, around what a system call does. Out: a hit of the call's point, with the nanoseconds between them,
//! waits included. A call that does not return (`exit`) has none. Runs in: system calls, interrupts on; the thread may
//! go on on another CPU. While a point is off, this is a look into a table, one load and a branch.

use kprof::Unit;
use kprof_events::Point;

use super::port::EVENTS;
use crate::cpu::clock;

/// Declares the point of each system call, and at first that of all others.
macro_rules! calls {
    ($($number:literal $name:literal),* $(,)?) => {
        const NUMBERS: &[usize] = &[$($number),*];
        static CALLS: [Point; NUMBERS.len() + 1] = [
            Point::new("syscall.other", Unit::Nanoseconds),
            $(Point::new(concat!("syscall.", $name), Unit::Nanoseconds)),*
        ];
    };
}

// Linux's numbers and names for x86-64.
calls! {
    0 "read", 1 "write", 2 "open", 3 "close", 4 "stat", 5 "fstat", 6 "lstat", 7 "poll", 8 "lseek", 9 "mmap",
    10 "mprotect", 11 "munmap", 12 "brk", 13 "rt_sigaction", 14 "rt_sigprocmask", 15 "rt_sigreturn", 16 "ioctl",
    17 "pread64", 18 "pwrite64", 19 "readv", 20 "writev", 21 "access", 22 "pipe", 24 "sched_yield", 32 "dup", 33 "dup2",
    34 "pause", 35 "nanosleep", 39 "getpid", 40 "sendfile", 56 "clone", 57 "fork", 58 "vfork", 59 "execve", 61 "wait4",
    62 "kill", 63 "uname", 72 "fcntl", 73 "flock", 74 "fsync", 76 "truncate", 77 "ftruncate", 79 "getcwd", 80 "chdir",
    82 "rename", 83 "mkdir", 84 "rmdir", 87 "unlink", 88 "symlink", 89 "readlink", 90 "chmod", 110 "getppid",
    130 "rt_sigsuspend", 186 "gettid", 202 "futex", 217 "getdents64", 228 "clock_gettime", 230 "clock_nanosleep",
    257 "openat", 262 "newfstatat", 263 "unlinkat", 270 "pselect6", 271 "ppoll", 292 "dup3", 293 "pipe2",
}

/// How many points there are.
pub(super) const POINTS: usize = NUMBERS.len() + 1;

/// The place of each number in `CALLS`.
static PLACES: [u8; 512] = {
    let mut places = [0; 512];
    let mut at = 0;
    while at < NUMBERS.len() {
        places[NUMBERS[at]] = at as u8 + 1;
        at += 1;
    }
    places
};

/// A system call that has begun, if its point is on.
pub type Begun = Option<(&'static Point, u64)>;

/// Called before a system call is served.
#[inline]
pub fn syscall_begins(number: u64) -> Begun {
    let place = PLACES.get(number as usize).copied().unwrap_or(0);
    let point = &CALLS[usize::from(place)];
    point.is_on().then(|| (point, clock::now_ns()))
}

/// Called after it was served, with what `syscall_begins` has returned.
#[inline]
pub fn syscall_ends(begun: Begun) {
    if let Some((point, begun_ns)) = begun {
        EVENTS.hit(point, clock::now_ns().saturating_sub(begun_ns));
    }
}
