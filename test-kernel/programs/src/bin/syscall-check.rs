//! Makes valid and invalid system calls and prints their results, which must be the same as on the host's Linux.
//!
//! Runs in an empty folder. It prints results, errno values and the bytes that were read back. It prints nothing that
//! may differ between two machines (addresses, process ids, times).

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn show<T: std::fmt::Debug>(name: &str, result: io::Result<T>) {
    match result {
        Ok(value) => println!("{name}: {value:?}"),
        Err(error) => println!("{name}: errno {:?}", error.raw_os_error()),
    }
}

/// A system call that takes only numbers. Returns the result as libc does.
fn call(number: libc::c_long, arguments: [usize; 6]) -> io::Result<libc::c_long> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: every use below passes numbers, null, or addresses that are not memory of this program.
    match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
        -1 => Err(io::Error::last_os_error()),
        value => Ok(value),
    }
}

fn files() -> io::Result<()> {
    let mut file = OpenOptions::new().read(true).write(true).create_new(true).open("one")?;
    show("write", file.write(b"hello, kernel"));
    show("seek", file.seek(SeekFrom::Start(7)));
    let mut text = String::new();
    show("read", file.read_to_string(&mut text));
    println!("text: {text}");
    show("seek before the start", file.seek(SeekFrom::Current(-100)));
    show("pread", file.read_at(&mut [0; 5], 10));
    show("pwrite", file.write_at(b"KERNEL", 7));
    show("truncate", file.set_len(9));
    show("length", file.metadata().map(|metadata| metadata.len()));
    show("extend", file.set_len(5000));
    let mut bytes = [1; 16];
    show("read of a hole", file.read_at(&mut bytes, 4992));
    println!("hole: {bytes:?}");
    show("fsync", file.sync_all());
    show("open again, new only", File::create_new("one").map(drop));
    show("append", OpenOptions::new().append(true).open("one").and_then(|mut file| file.write(b"x")));
    show("length after append", fs::metadata("one").map(|metadata| metadata.len()));
    show("open what is not there", File::open("two").map(drop));
    show("open below a file", File::open("one/two").map(drop));
    show("open a folder to write", OpenOptions::new().write(true).open(".").map(drop));
    show("mode", OpenOptions::new().write(true).truncate(true).create(true).mode(0o640).open("modes").map(drop));
    show("write to a file opened to read", File::open("one").and_then(|mut file| file.write(b"x")));
    show("read from a closed number", call(libc::SYS_read, [1000, 0, 1, 0, 0, 0]));
    show("read to an address that is none", call(libc::SYS_read, [file.as_raw_fd() as usize, 8, 1, 0, 0, 0]));
    show("rename", fs::rename("one", "three"));
    show("names", names());
    show("make a folder", fs::create_dir("folder"));
    show("make it again", fs::create_dir("folder"));
    show("file in it", fs::write("folder/inside", b"i"));
    show("remove a full folder", fs::remove_dir("folder"));
    show("remove a folder as a file", fs::remove_file("folder"));
    show("remove a file as a folder", fs::remove_dir("three"));
    show("link", std::os::unix::fs::symlink("folder/inside", "link"));
    show("read through the link", fs::read_to_string("link"));
    show("read the link", fs::read_link("link"));
    show("length of the link", fs::symlink_metadata("link").map(|metadata| metadata.len()));
    for name in ["link", "folder/inside", "three", "modes"] {
        show("remove", fs::remove_file(name));
    }
    show("remove the folder", fs::remove_dir("folder"));
    show("remove what is not there", fs::remove_file("three"));
    show("names", names());
    Ok(())
}

fn names() -> io::Result<Vec<String>> {
    let names: io::Result<Vec<_>> =
        fs::read_dir(".")?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect();
    let mut names = names?;
    names.sort();
    Ok(names)
}

fn pipes() -> io::Result<()> {
    let (mut reads, mut writes) = io::pipe()?;
    show("write to a pipe", writes.write(&[7; 1000]));
    let mut bytes = [0; 2000];
    show("read from a pipe", reads.read(&mut bytes));
    show("seek in a pipe", call(libc::SYS_lseek, [reads.as_raw_fd() as usize, 0, 0, 0, 0, 0]));
    drop(writes);
    show("read at the end of a pipe", reads.read(&mut bytes));
    let (reads, mut writes) = io::pipe()?;
    drop(reads);
    show("write to a pipe that nobody reads", writes.write(b"x"));
    Ok(())
}

fn memory() {
    let anonymous = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
    show("mmap of nothing", call(libc::SYS_mmap, [0, 0, 3, anonymous, usize::MAX, 0]));
    show("mmap of a bad file", call(libc::SYS_mmap, [0, 4096, 1, libc::MAP_PRIVATE as usize, 1000, 0]));
    show("munmap, not a page", call(libc::SYS_munmap, [4097, 4096, 0, 0, 0, 0]));
    show("mprotect, not a page", call(libc::SYS_mprotect, [4097, 4096, 0, 0, 0, 0]));
    let big: Vec<u8> = (0..3_000_000u32).map(|index| index as u8).collect();
    println!("sum: {}", big.iter().map(|byte| u64::from(*byte)).sum::<u64>());
}

static CAUGHT: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_signal(number: libc::c_int) {
    CAUGHT.fetch_add(number as usize, Ordering::SeqCst);
}

fn signals() {
    // SAFETY: the handler only changes an atomic.
    unsafe { libc::signal(libc::SIGUSR1, on_signal as *const () as usize) };
    // SAFETY: this sends a signal to this process, which has a handler for it.
    show("kill", Ok(unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) }));
    println!("caught: {}", CAUGHT.load(Ordering::SeqCst));
    // SAFETY: the signal sets are in local memory.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGUSR1);
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        libc::kill(libc::getpid(), libc::SIGUSR1);
        println!("blocked, caught: {}", CAUGHT.load(Ordering::SeqCst));
        libc::sigprocmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
    println!("unblocked, caught: {}", CAUGHT.load(Ordering::SeqCst));
    show("kill nobody", call(libc::SYS_kill, [999_999_999, 0, 0, 0, 0, 0]));
    show("kill with a bad number", call(libc::SYS_kill, [std::process::id() as usize, 99, 0, 0, 0, 0]));
    show("catch what cannot be caught", {
        // SAFETY: the kernel refuses this call.
        match unsafe { libc::signal(libc::SIGKILL, on_signal as *const () as usize) } {
            libc::SIG_ERR => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    });
}

fn processes() {
    show("wait without children", {
        // SAFETY: the null pointer means that no status is requested.
        match unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } {
            -1 => Err(io::Error::last_os_error()),
            pid => Ok(pid),
        }
    });
    for (name, how) in [("exit 7", 0), ("exit 300", 1), ("abort", 2), ("write to address 8", 3), ("SIGTERM", 4)] {
        // SAFETY: this program has one thread, and the child ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: each of these calls ends the child, as intended.
            unsafe {
                match how {
                    0 => libc::_exit(7),
                    1 => libc::_exit(300),
                    2 => libc::abort(),
                    3 => {
                        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                        std::ptr::with_exposed_provenance_mut::<u8>(8).write_volatile(1);
                    }
                    _ => {
                        libc::kill(libc::getpid(), libc::SIGTERM);
                    }
                }
                libc::_exit(99)
            }
        }
        let mut status = 0;
        // SAFETY: this waits for the child that was made above.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        println!("{name}: {} status {:#x}", waited == child, status & !0x80);
    }
    show("run what is not there", Command::new("/nowhere").status().map(|status| status.code()));
    show("run a folder", Command::new("/").status().map(|status| status.code()));
    let program = std::env::args().next().unwrap_or_default();
    let output = Command::new(program).args(["child", "a b"]).env("KPROF_CHECK", "yes").output();
    show(
        "run itself",
        output.map(|output| (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())),
    );
}

fn time() {
    let start = Instant::now();
    std::thread::sleep(Duration::from_millis(30));
    let slept = start.elapsed();
    println!("slept: {}", slept >= Duration::from_millis(30) && slept < Duration::from_secs(10));
    // SAFETY: the address is not memory of this program.
    show("clock that is none", call(libc::SYS_clock_gettime, [77, 8, 0, 0, 0, 0]));
    show("sleep for a bad time", call(libc::SYS_nanosleep, [8, 0, 0, 0, 0, 0]));
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "child") {
        println!("{arguments:?} {:?}", std::env::var("KPROF_CHECK"));
        std::process::exit(3);
    }
    files()?;
    pipes()?;
    memory();
    signals();
    processes();
    time();
    show("a call that is none", call(100_000, [0; 6]));
    show("change to what is not there", std::env::set_current_dir("nowhere"));
    let long = CString::new("x".repeat(5000)).map_err(io::Error::other)?;
    // SAFETY: the string ends with a zero byte.
    show(
        "a name that is too long",
        match unsafe { libc::open(long.as_ptr(), 0) } {
            -1 => Err(io::Error::last_os_error()),
            number => Ok(number),
        },
    );
    Ok(())
}
