//! For the scenario `bad-buffer`: reads a claimed stream into memory that cannot be written, and then into memory that
//! can.
//!
//! In: `ctl-profiling` and `profiling-1` of a kernel that is busy on CPU 1. Out: exit code 0 if each bad read was
//! refused with EFAULT and consumed nothing, and the good ones got every record from the first one on.

use std::fs::{File, OpenOptions};
use std::io::{self, Error, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::process::ExitCode;
use std::ptr;
use std::thread::sleep;
use std::time::Duration;

const FOLDER: &str = "/scheme/debug";
const PAGE_BYTES: usize = 4096;
/// No memory of any program.
const NOWHERE: usize = 8;
/// The bytes of a read: more than the ring has.
const READ_BYTES: usize = 16 << 20;
/// The words that the ring is to have before the reads.
const WANTED_WORDS: u64 = 1000;
/// The most waits for them, of 20 ms each.
const MAX_WAITS: u32 = 3000;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bad-buffer: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> io::Result<()> {
    let mut ctl = OpenOptions::new().read(true).write(true).open(format!("{FOLDER}/ctl-profiling"))?;
    ctl.write_all(b"protocol 1\n")?;
    ctl.write_all(b"start\n")?;
    // A busy host may run the sampler only rarely.
    for _ in 0..MAX_WAITS {
        if state()?.words() > WANTED_WORDS {
            break;
        }
        sleep(Duration::from_millis(20));
    }
    // If a CPU of a busy host has not run for more than a second, `stop` is refused, although it takes effect.
    while ctl.write_all(b"stop\n").is_err() {}
    let stream = File::open(format!("{FOLDER}/profiling-1"))?;
    let before = state()?;
    let half = half_a_buffer()?;
    let bad = [("no memory", NOWHERE), ("memory that ends in the middle of a record", half)];
    for (what, address) in bad.iter().cycle().take(6) {
        // SAFETY: the kernel must refuse the read; it may write only the page before the end of `half`, which nothing
        // else uses.
        let result = unsafe { libc::read(stream.as_raw_fd(), ptr::without_provenance_mut(*address), READ_BYTES) };
        let error = Error::last_os_error();
        if result != -1 || error.raw_os_error() != Some(libc::EFAULT) {
            return Err(Error::other(format!("a read into {what} returned {result}, {error}")));
        }
    }
    let after = state()?;
    if after != before {
        return Err(Error::other(format!("the bad reads have changed the ring: {before:?}, then {after:?}")));
    }
    let words = read_all(stream)?;
    let Ring { position_in, position_out, .. } = before;
    let (got, first) = (words.len() as u64, words.get(1).copied());
    if got <= WANTED_WORDS || got != before.words() || first != Some(position_out) {
        return Err(Error::other(format!("{got} words were read, the first record is at {first:?}: {before:?}")));
    }
    ctl.write_all(format!("ack 1 {position_in}\n").as_bytes())
}

/// What ctl says of the ring of CPU 1.
#[derive(Debug, PartialEq, Eq)]
struct Ring {
    position_in: u64,
    position_out: u64,
    delivered: u64,
}

impl Ring {
    /// The words in the ring.
    fn words(&self) -> u64 {
        self.position_in - self.position_out
    }
}

fn state() -> io::Result<Ring> {
    let text = std::fs::read_to_string(format!("{FOLDER}/ctl-profiling"))?;
    let value = |name: &str| {
        let key = format!("cpu.1.{name} ");
        let found = text.lines().find_map(|line| line.strip_prefix(&key)?.parse().ok());
        found.ok_or_else(|| Error::other(format!("ctl has no {key}")))
    };
    let (position_in, position_out) = (value("position-in")?, value("position-out")?);
    Ok(Ring { position_in, position_out, delivered: value("delivered")? })
}

/// The address of two pages, of which the second one cannot be accessed, less a word: the first words of a record fit,
/// and the rest does not.
fn half_a_buffer() -> io::Result<usize> {
    // SAFETY: the kernel chooses the address, so no other memory is replaced.
    let pages = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(ptr::null_mut(), 2 * PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    if pages == libc::MAP_FAILED {
        return Err(Error::last_os_error());
    }
    let second = pages.addr() + PAGE_BYTES;
    // SAFETY: the page was mapped above, and nothing refers to it. It stays mapped, so nothing else is put there.
    if unsafe { libc::mprotect(ptr::without_provenance_mut(second), PAGE_BYTES, libc::PROT_NONE) } != 0 {
        return Err(Error::last_os_error());
    }
    Ok(second - 3 * size_of::<u64>())
}

/// All words that the stream has.
fn read_all(mut stream: File) -> io::Result<Vec<u64>> {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        let got = stream.read(&mut buffer)?;
        if got == 0 {
            break;
        }
        bytes.extend_from_slice(&buffer[..got]);
    }
    Ok(bytes
        .chunks_exact(size_of::<u64>())
        .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()))
        .collect())
}
