//! The control file: commands, state, reads of records that stay in the kernel until acknowledged.
//!
//! In: what a daemon writes to `ctl-profiling`, reads of that file and of `profiling-meta` and
//! `profiling-N` under `protocol 1`. Out: commands to kprof; its state; framed records. Runs in:
//! system calls. A refused command changes nothing; its reason is the last line of the next read of
//! ctl.

use alloc::{collections::BTreeMap, string::String, sync::Arc, vec::Vec};

use kprof::{ControlFile, ReadError, StreamFile};

use super::{
    read::{is_set_up, DBG_ID_MAP},
    rings, PROFILER,
};
use crate::{
    context,
    cpu_set::LogicalCpuId,
    sync::CleanLockToken,
    syscall::{
        error::*,
        usercopy::{UserSliceRo, UserSliceWo},
    },
};

/// The longest write of commands.
const MAX_BYTES: usize = 4096;
/// The most that one read of records takes.
const READ_BYTES: usize = 64 * 1024;
/// The most names that are repeated for a new reader: half of the meta stream has space for them.
const REPEATED_NAMES: usize = 128;
/// How often a waiting thread checks again.
const LOOK_NS: u128 = 10_000_000;
/// How long a write waits until kprof is set up. The sampler CPU calibrates its clocks in about 150 ms.
const SET_UP_NS: u128 = 3_000_000_000;

/// The open control files by their handles. The lock is only held for a lookup.
static FILES: spin::Mutex<BTreeMap<usize, Arc<ControlFile>>> = spin::Mutex::new(BTreeMap::new());

/// The process that calls.
fn process(token: &mut CleanLockToken) -> u64 {
    context::current().read(token.token()).pid as u64
}

/// The control file of the handle `id`. It belongs to the process that uses it first.
fn file(id: usize, token: &mut CleanLockToken) -> Arc<ControlFile> {
    let process = process(token);
    FILES
        .lock()
        .entry(id)
        .or_insert_with(|| Arc::new(PROFILER.open_control(process)))
        .clone()
}

/// A write to `ctl-profiling` by the handle `id`.
pub fn write(id: usize, buf: UserSliceRo, token: &mut CleanLockToken) -> Result<usize> {
    let mut commands = [0; MAX_BYTES];
    let commands = commands.get_mut(..buf.len()).ok_or(Error::new(EINVAL))?;
    buf.copy_to_slice(commands)?;
    wait_until_set_up(token)?;
    let done = file(id, token).write(commands).map_err(|refusal| {
        info!("kprof: refused: {refusal}");
        Error::new(if refusal.is_busy() { EBUSY } else { EINVAL })
    })?;
    if done.wants_names {
        repeat_names(token);
    }
    if let Some(ms) = done.wait_ms {
        let end =
            crate::time::monotonic(token).saturating_add(u128::from(ms).saturating_mul(1_000_000));
        // A signal ends the wait, and the write has succeeded.
        while !PROFILER.reader_due() && crate::time::monotonic(token) < end && !sleep(token) {}
    }
    Ok(commands.len())
}

/// Set-up replaces all settings, so a command that is carried out earlier would have no effect.
fn wait_until_set_up(token: &mut CleanLockToken) -> Result<()> {
    let end = crate::time::monotonic(token).saturating_add(SET_UP_NS);
    while !is_set_up() {
        if rings().is_empty() {
            info!("kprof: refused: nothing is sampled");
            return Err(Error::new(ENODEV));
        }
        if crate::time::monotonic(token) >= end {
            info!("kprof: refused: not set up");
            return Err(Error::new(EAGAIN));
        }
        if sleep(token) {
            return Err(Error::new(EINTR));
        }
    }
    Ok(())
}

/// Sends the names of the newest contexts again. `DBG_ID_MAP` has the names of contexts that have ended, too.
fn repeat_names(token: &mut CleanLockToken) {
    let names = DBG_ID_MAP.read(token.token());
    let mut ids: Vec<u32> = names.keys().copied().collect();
    ids.sort_unstable_by(|left, right| right.cmp(left));
    for id in ids.into_iter().take(REPEATED_NAMES) {
        if let Some(name) = names.get(&id) {
            PROFILER.task_name(u64::from(id), name);
        }
    }
}

/// Lets the calling context sleep for a moment. Returns whether a signal has ended it.
fn sleep(token: &mut CleanLockToken) -> bool {
    let wake = crate::time::monotonic(token).saturating_add(LOOK_NS);
    let current = context::current();
    {
        let mut current = current.write(token.token());
        current.wake = Some(wake);
        current.block("kprof");
    }
    context::switch(token);
    // If the wake time is still set, the context was woken by something else, which is a signal.
    current.write(token.token()).wake.take().is_some()
}

/// A read of `ctl-profiling` at `offset`: state and counters, as `key value` lines.
pub fn read(id: usize, buf: UserSliceWo, offset: u64, token: &mut CleanLockToken) -> Result<usize> {
    let mut text = String::new();
    file(id, token)
        .read(&mut text)
        .map_err(|_| Error::new(EIO))?;
    let rest = text.as_bytes().get(offset as usize..).unwrap_or(&[]);
    buf.copy_common_bytes_from_slice(rest)
}

/// Called when a handle of `ctl-profiling` is closed. Its claim on the streams ends.
pub fn close(id: usize) {
    // It is dropped after the table is unlocked. Then the settings of its lease are undone.
    let closed = FILES.lock().remove(&id);
    drop(closed);
}

/// A read of `profiling-meta`: names, marks, settings.
pub fn read_meta(buf: UserSliceWo, token: &mut CleanLockToken) -> Result<usize> {
    framed(buf, &PROFILER.open_meta(process(token)))
}

/// A read of `profiling-N`: framed records if a process has claimed the streams, otherwise raw words as in step 1.
pub fn read_stream(
    cpu: LogicalCpuId,
    buf: UserSliceWo,
    token: &mut CleanLockToken,
) -> Result<usize> {
    if !PROFILER.is_claimed() {
        return super::drain_buffer(cpu, buf);
    }
    let stream = PROFILER
        .open_stream(cpu.get() as usize, process(token))
        .map_err(|_| Error::new(EBADFD))?;
    framed(buf, &stream)
}

/// Reads records through kernel memory. If the copy fails nothing is lost: records that were not acknowledged are read
/// again after the next claim.
fn framed(buf: UserSliceWo, stream: &StreamFile) -> Result<usize> {
    let mut records = alloc::vec![0; buf.len().min(READ_BYTES)];
    let bytes = stream.read(&mut records).map_err(errno)?;
    buf.copy_common_bytes_from_slice(records.get(..bytes).unwrap_or(&[]))
}

/// What a refused read of a stream returns. EAGAIN tells the reader to try again.
pub fn errno(error: ReadError) -> Error {
    Error::new(match error {
        ReadError::Claimed => EBUSY,
        ReadError::Busy => EAGAIN,
        _ => EINVAL,
    })
}
