//! Copies between kernel and user memory: the only code that touches user addresses.
//!
//! A page fault inside the copy is handled like any other. If it cannot be resolved, the copy ends early and returns
//! how many bytes are left. Addresses are checked before the copy. Runs in: system calls.

use core::arch::global_asm;

use alloc::string::String;
use alloc::vec::Vec;

use super::USER_END;
use crate::errno::Errno;

global_asm!(
    r#"
// rdi = to, rsi = from, rdx = bytes; gives the bytes not copied. A fault that cannot be served continues at the label.
.global user_copy
user_copy:
    push rbp
    mov rbp, rsp
    mov rcx, rdx
    shr rcx, 3
    and edx, 7
.Luser_copy_words:
    rep movsq
    mov ecx, edx
    xor edx, edx
.Luser_copy_bytes:
    rep movsb
.Luser_copy_end:
    lea rax, [rdx + rcx]
    pop rbp
    ret
.Luser_copy_words_failed:
    lea rax, [rdx + rcx * 8]
    pop rbp
    ret
.type user_copy, @function
.size user_copy, . - user_copy

// rdi = to, rsi = bytes; zeroes, same rules.
.global user_zero
user_zero:
    push rbp
    mov rbp, rsp
    xor eax, eax
    mov rcx, rsi
    shr rcx, 3
    mov edx, esi
    and edx, 7
.Luser_zero_words:
    rep stosq
    mov ecx, edx
    xor edx, edx
.Luser_zero_bytes:
    rep stosb
    lea rax, [rdx + rcx]
    pop rbp
    ret
.type user_zero, @function
.size user_zero, . - user_zero

.section .rodata
.align 8
// Where a copy can fault, and where it then continues. This is a table, because symbols would split the functions in
// profiles.
.global user_places
user_places:
    .quad .Luser_copy_words, .Luser_copy_words_failed
    .quad .Luser_copy_bytes, .Luser_copy_end
    .quad .Luser_zero_words, .Luser_copy_words_failed
    .quad .Luser_zero_bytes, .Luser_copy_end
.text
"#
);

unsafe extern "C" {
    fn user_copy(to: u64, from: u64, bytes: u64) -> u64;
    fn user_zero(to: u64, bytes: u64) -> u64;
    static user_places: [[u64; 2]; 4];
}

/// The address at which to continue after a fault at `rip` that cannot be resolved, if `rip` is in one of the copies.
pub fn fixup(rip: u64) -> Option<u64> {
    // SAFETY: constant data of the assembly above.
    unsafe { user_places }.into_iter().find(|[faults, _]| *faults == rip).map(|[_, next]| next)
}

/// Whether all addresses of a range are in the user half.
pub fn is_user(address: u64, bytes: u64) -> bool {
    address.checked_add(bytes).is_some_and(|end| end <= USER_END)
}

/// Copies to user memory.
///
/// # Errors
/// EFAULT if not all of it could be written.
pub fn write(to: u64, bytes: &[u8]) -> Result<(), Errno> {
    if !is_user(to, bytes.len() as u64) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the target is user memory, where a fault is handled. The source is a slice.
    match unsafe { user_copy(to, bytes.as_ptr() as u64, bytes.len() as u64) } {
        0 => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

/// Zeroes user memory.
///
/// # Errors
/// EFAULT if not all of it could be written.
pub fn zero(to: u64, bytes: u64) -> Result<(), Errno> {
    if !is_user(to, bytes) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the target is user memory, where a fault is handled.
    match unsafe { user_zero(to, bytes) } {
        0 => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

/// Copies from user memory.
///
/// # Errors
/// EFAULT if not all of it could be read.
pub fn read(from: u64, bytes: &mut [u8]) -> Result<(), Errno> {
    if !is_user(from, bytes.len() as u64) {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the source is user memory, where a fault is handled. The target is a slice.
    match unsafe { user_copy(bytes.as_mut_ptr() as u64, from, bytes.len() as u64) } {
        0 => Ok(()),
        _ => Err(Errno::EFAULT),
    }
}

/// Reads a 64-bit word.
///
/// # Errors
/// EFAULT if it cannot be read.
pub fn read_u64(from: u64) -> Result<u64, Errno> {
    let mut bytes = [0; 8];
    read(from, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Reads `bytes` bytes.
///
/// # Errors
/// EFAULT if they cannot be read.
pub fn read_vec(from: u64, bytes: usize) -> Result<Vec<u8>, Errno> {
    let mut vec = Vec::new();
    append_to(&mut vec, from, bytes)?;
    Ok(vec)
}

/// Appends `bytes` bytes to `vec`. They are copied into its unused capacity, which is not cleared before.
///
/// # Errors
/// EFAULT if they cannot be read; `vec` is then as it was before.
pub fn append_to(vec: &mut Vec<u8>, from: u64, bytes: usize) -> Result<(), Errno> {
    if !is_user(from, bytes as u64) {
        return Err(Errno::EFAULT);
    }
    vec.reserve_exact(bytes);
    let room = vec.spare_capacity_mut();
    // SAFETY: the source is user memory, where a fault is handled. The target is the unused capacity of the vector,
    // which has at least this many bytes after `reserve_exact`.
    let left = unsafe { user_copy(room.as_mut_ptr() as u64, from, bytes as u64) };
    if left != 0 {
        return Err(Errno::EFAULT);
    }
    // SAFETY: the copy has written all of these bytes, and they lie in the vector's capacity.
    unsafe { vec.set_len(vec.len() + bytes) };
    Ok(())
}

/// Reads a path.
///
/// # Errors
/// As [`read_string`]; ENAMETOOLONG beyond 4095 bytes, or 255 bytes in a part (Linux's limits).
pub fn read_path(from: u64) -> Result<String, Errno> {
    let path = read_string(from)?;
    if path.len() > 4095 || path.split('/').any(|part| part.len() > 255) {
        return Err(Errno::ENAMETOOLONG);
    }
    Ok(path)
}

/// Reads a string that ends with a zero byte.
///
/// # Errors
/// EFAULT if it cannot be read, ENAMETOOLONG beyond 128 KiB, EINVAL if it is not UTF-8, as all names of this kernel
/// are.
pub fn read_string(from: u64) -> Result<String, Errno> {
    let mut text = Vec::new();
    let mut at = from;
    while text.len() < 128 << 10 {
        // Reads at most to the end of the page, because the next page may not be mapped.
        let mut chunk = [0; 256];
        let bytes = (4096 - at % 4096).min(256) as usize;
        read(at, &mut chunk[..bytes])?;
        if let Some(end) = chunk[..bytes].iter().position(|byte| *byte == 0) {
            text.extend_from_slice(&chunk[..end]);
            return String::from_utf8(text).map_err(|_| Errno::EINVAL);
        }
        text.extend_from_slice(&chunk[..bytes]);
        at += bytes as u64;
    }
    Err(Errno::ENAMETOOLONG)
}
