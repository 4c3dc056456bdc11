//! kprof in the Redox kernel, step 2: this file as `src/profiling_control.rs`, called from `src/scheme/debug.rs`.
//!
//! In: what a daemon writes to `ctl-profiling`, reads of that file and of `profiling-meta` and `profiling-N` under
//! `protocol 1`. Out: commands to kprof; its state; framed records, which stay in the kernel until they are
//! acknowledged. Runs in: system calls. A refused command changes nothing; its reason is the last line of the next read
//! of ctl. The README beside this file says which places of the kernel call what.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use core::arch::naked_asm;
use core::sync::atomic::Ordering;

use kprof::format::marker::MARKER_PAGE;
use kprof::{ControlFile, ReadError, StreamFile};

use crate::context;
use crate::cpu_set::LogicalCpuId;
use crate::profiling::PROFILER;
use crate::sync::CleanLockToken;
use crate::syscall::error::*;
use crate::syscall::usercopy::{UserSliceRo, UserSliceWo};

/// The longest write of commands.
const MAX_BYTES: usize = 4096;
/// The most that one read of records takes.
const READ_BYTES: usize = 64 * 1024;
/// How often a waiting thread checks again.
const LOOK_NS: u128 = 10_000_000;

/// The open control files by their handles. The lock is only held for a lookup.
static FILES: spin::Mutex<BTreeMap<usize, Arc<ControlFile>>> = spin::Mutex::new(BTreeMap::new());

/// The process that calls.
fn process(token: &mut CleanLockToken) -> u64 {
    context::current().read(token.token()).pid as u64
}

/// The control file of the handle `id`. It belongs to the process that uses it first.
fn file(id: usize, token: &mut CleanLockToken) -> Arc<ControlFile> {
    let process = process(token);
    FILES.lock().entry(id).or_insert_with(|| Arc::new(PROFILER.open_control(process))).clone()
}

/// A write to `ctl-profiling` by the handle `id`.
pub fn write(id: usize, buf: UserSliceRo, token: &mut CleanLockToken) -> Result<usize> {
    let mut commands = [0; MAX_BYTES];
    let commands = commands.get_mut(..buf.len()).ok_or(Error::new(EINVAL))?;
    buf.copy_to_slice(commands)?;
    let done = file(id, token).write(commands).map_err(|refusal| {
        info!("kprof: refused: {refusal}");
        Error::new(if refusal.is_busy() { EBUSY } else { EINVAL })
    })?;
    if let Some(ms) = done.wait_ms {
        let end = crate::time::monotonic(token) + u128::from(ms) * 1_000_000;
        // A signal ends the wait, and the write has succeeded.
        while !PROFILER.reader_due() && crate::time::monotonic(token) < end && !sleep(token) {}
    }
    Ok(commands.len())
}

/// Lets the calling context sleep for a moment. Returns whether a signal has ended it.
fn sleep(token: &mut CleanLockToken) -> bool {
    let wake = crate::time::monotonic(token) + LOOK_NS;
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
    file(id, token).read(&mut text).map_err(|_| Error::new(EIO))?;
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
pub fn read_stream(cpu: LogicalCpuId, buf: UserSliceWo, token: &mut CleanLockToken) -> Result<usize> {
    if !PROFILER.is_claimed() {
        return crate::profiling::drain_buffer(cpu, buf);
    }
    let stream = PROFILER.open_stream(cpu.get() as usize, process(token)).map_err(|_| Error::new(EBADFD))?;
    framed(buf, &stream)
}

/// Reads records through kernel memory. If the copy fails nothing is lost: records that were not acknowledged are read
/// again after the next claim.
fn framed(buf: UserSliceWo, stream: &StreamFile) -> Result<usize> {
    let mut records = alloc::vec![0; buf.len().min(READ_BYTES)];
    let bytes = stream.read(&mut records).map_err(|error| {
        Error::new(if matches!(error, ReadError::Claimed | ReadError::Busy) { EBUSY } else { EINVAL })
    })?;
    buf.copy_common_bytes_from_slice(&records[..bytes])
}

/// Called when a context is created, or starts another program.
pub fn name_task(debug_id: u32, name: &str) {
    PROFILER.task_name(u64::from(debug_id), name);
}

/// Called in the last hook of the switch, on the new stack. From here on samples belong to the current context.
pub fn task_is_current() {
    // SAFETY: the hook has dropped the guards of both contexts, and nothing else is locked there.
    let mut token = unsafe { CleanLockToken::new() };
    let id = context::current().read(token.token()).debug_id;
    crate::percpu::PercpuBlock::current().switch_internals.current_dbg_id.store(id, Ordering::Relaxed);
}

/// The stub to which the table of generic interrupts jumps. The table's entry has pushed vector - 160. The stub
/// replaces this by the marker of that vector, so that the unwinder continues through it.
///
/// # Safety
/// This is an interrupt entry, which must not be called.
#[unsafe(naked)]
pub unsafe extern "C" fn generic_interrupt() {
    extern "C" fn handle(marker: u64) {
        crate::arch::interrupt::irq::generic((marker as u8).wrapping_sub(32));
    }
    naked_asm!(
        "cld; test qword ptr [rsp + 16], 3; jz 2f; swapgs; 2:",
        "add qword ptr [rsp], {to_marker}",
        "push rbp; mov rbp, rsp",
        "push rax; push rcx; push rdx; push rsi; push rdi; push r8; push r9; push r10; push r11",
        "mov rdi, [rbp + 8]; call {handle}",
        "pop r11; pop r10; pop r9; pop r8; pop rdi; pop rsi; pop rdx; pop rcx; pop rax",
        "pop rbp; add rsp, 8; test qword ptr [rsp + 8], 3; jz 3f; swapgs; 3: iretq",
        to_marker = const MARKER_PAGE as i64 + 0x100 + 160,
        handle = sym handle,
    )
}
