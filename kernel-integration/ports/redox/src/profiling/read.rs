//! What user space reads: samples as Redox's raw words, and the names of contexts.
//!
//! In: reads of `profiling-N`, and `call` with the id of a context. Out: whole records, in the form
//! that Redox's own `profiled` reads. If a copy to user memory fails, the next read gets them. Runs
//! in: system calls.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, Ordering};

use kprof::ReadError;

use super::{rings, PROFILER};
use crate::{
    cpu_set::LogicalCpuId,
    sync::{CleanLockToken, RwLock, L1},
    syscall::{error::*, usercopy::UserSliceWo},
};

/// Bytes that a read copies at a time. A raw record has at most 2040.
const READ_BYTES: usize = 16 * 1024;

type Name = arrayvec::ArrayString<32>;
type Names = hashbrown::HashMap<u32, Name>;

/// Names of contexts by debug id, those of contexts that have ended too: `profiled` asks later.
pub static DBG_ID_MAP: RwLock<L1, Names> = RwLock::new(Names::with_hasher(
    hashbrown::hash_map::DefaultHashBuilder::new(),
));

/// Whether kprof is set up, so that names can be sent to it. It counts an earlier one as lost.
static IS_SENDING: AtomicBool = AtomicBool::new(false);

/// Whether commands have an effect.
pub(super) fn is_set_up() -> bool {
    IS_SENDING.load(Ordering::SeqCst)
}

/// Called when a context is created, or starts another program.
pub fn name_context(id: u32, name: Name, token: &mut CleanLockToken) {
    DBG_ID_MAP.write(token.token()).insert(id, name);
    if is_set_up() {
        PROFILER.task_name(u64::from(id), &name);
    }
}

/// Called when kprof was set up: sends the names that were given before. A name that is given now may
/// be sent twice.
pub(super) fn send_names(token: &mut CleanLockToken) {
    IS_SENDING.store(true, Ordering::SeqCst);
    for (id, name) in DBG_ID_MAP.read(token.token()).iter() {
        PROFILER.task_name(u64::from(*id), name);
    }
}

/// The name of a context that runs or has run.
pub fn lookup_dbg_id(id: u32, token: &mut CleanLockToken) -> Option<Name> {
    DBG_ID_MAP.read(token.token()).get(&id).copied()
}

/// Records that are being copied to user memory. They stay here until the copy has succeeded.
pub(super) struct Reading {
    bytes: Box<[u8]>,
    next: usize,
    end: usize,
}

impl Reading {
    pub(super) fn new() -> Self {
        let bytes = alloc::vec![0; READ_BYTES].into_boxed_slice();
        Self {
            bytes,
            next: 0,
            end: 0,
        }
    }

    fn unread(&self) -> &[u8] {
        self.bytes.get(self.next..self.end).unwrap_or(&[])
    }

    /// The unread whole records that fit into `room` bytes.
    fn whole_records(&self, room: usize) -> &[u8] {
        let (unread, mut whole) = (self.unread(), 0);
        // The lowest byte of a record's first word is its length in words.
        while let Some(words) = unread.get(whole) {
            let end = usize::from(*words).wrapping_mul(8).saturating_add(whole);
            if end > room {
                break;
            }
            whole = end;
        }
        unread.get(..whole).unwrap_or(&[])
    }
}

/// Reads whole records of one CPU.
pub fn drain_buffer(cpu_num: LogicalCpuId, buf: UserSliceWo) -> Result<usize> {
    let cpu = cpu_num.get() as usize;
    let ring = rings().get(cpu).ok_or(Error::new(EBADFD))?;
    // Only one reader at a time: two would each get a part of the records.
    let mut reading = ring.reading.try_lock().ok_or(Error::new(EBUSY))?;
    let mut done = 0;
    while let Some(rest) = buf.advance(done) {
        if reading.next == reading.end {
            let stream = PROFILER.open_stream(cpu, 0);
            let read = stream.and_then(|stream| stream.read(&mut reading.bytes));
            (reading.next, reading.end) = match read {
                Ok(bytes) => (0, bytes),
                // The CPU is not ready yet.
                Err(ReadError::NoStream) => (0, 0),
                Err(_) => return Err(Error::new(EBUSY)),
            };
        }
        let whole = reading.whole_records(rest.len());
        if whole.is_empty() {
            let is_too_small = done == 0 && !reading.unread().is_empty() && !buf.is_empty();
            return if is_too_small {
                Err(Error::new(EINVAL))
            } else {
                Ok(done)
            };
        }
        let bytes = whole.len();
        match rest.copy_common_bytes_from_slice(whole) {
            Ok(_) => {
                (done, reading.next) = (done.wrapping_add(bytes), reading.next.wrapping_add(bytes))
            }
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}
