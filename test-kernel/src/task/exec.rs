//! Programs: static x86-64 Linux ELF files and `#!` scripts become address spaces with a stack, arguments and auxv.
//!
//! In: a path, arguments, environment. Out: the new memory of the running process, and the registers that start the
//! program. The old program stays intact until the new one was checked.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use elf::ElfBytes;
use elf::abi::{ET_DYN, PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD};
use elf::endian::LittleEndian;

use super::{process, thread};
use crate::cpu::entry::TrapFrame;
use crate::cpu::gdt::{USER_CODE, USER_DATA};
use crate::errno::{Errno, Result};
use crate::fs;
use crate::memory::space::{AddressSpace, Backing, BadAddress, Bytes, Protection};
use crate::memory::{PAGE, page_ceil, page_floor, user};
use crate::random;

const STACK_TOP: u64 = 0x7fff_ffff_0000;
const STACK_BYTES: u64 = 8 << 20;
/// Where position-independent programs are loaded.
const DYNAMIC_BASE: u64 = 0x5555_5555_0000;

const AT_PHDR: u64 = 3;
const AT_PHENT: u64 = 4;
const AT_PHNUM: u64 = 5;
const AT_PAGESZ: u64 = 6;
const AT_BASE: u64 = 7;
const AT_ENTRY: u64 = 9;
const AT_UID: u64 = 11;
const AT_EUID: u64 = 12;
const AT_GID: u64 = 13;
const AT_EGID: u64 = 14;
const AT_SECURE: u64 = 23;
const AT_RANDOM: u64 = 25;
const AT_EXECFN: u64 = 31;

/// The last part of a path, which is the name of a thread in a profile.
pub fn short_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl From<BadAddress> for Errno {
    fn from(_: BadAddress) -> Self {
        Self::EINVAL
    }
}

struct Image {
    entry: u64,
    headers: u64,
    header_count: u64,
    end: u64,
}

/// Maps the segments of `bytes` in `space`.
fn load(space: &AddressSpace, bytes: &Bytes) -> Result<Image> {
    let file = ElfBytes::<LittleEndian>::minimal_parse(bytes.get()).map_err(|_| Errno::ENOEXEC)?;
    let segments = file.segments().ok_or(Errno::ENOEXEC)?;
    if file.ehdr.e_machine != elf::abi::EM_X86_64 || segments.iter().any(|segment| segment.p_type == PT_INTERP) {
        // Only static programs are supported, because there is no dynamic linker.
        return Err(Errno::ENOEXEC);
    }
    let bias = if file.ehdr.e_type == ET_DYN { DYNAMIC_BASE } else { 0 };
    let mut image = Image { entry: bias + file.ehdr.e_entry, headers: 0, header_count: segments.len() as u64, end: 0 };
    for segment in segments.iter().filter(|segment| segment.p_type == PT_LOAD && segment.p_memsz != 0) {
        let mut protection = Protection::empty();
        protection.set(Protection::READ, segment.p_flags & PF_R != 0);
        protection.set(Protection::WRITE, segment.p_flags & PF_W != 0);
        protection.set(Protection::EXECUTE, segment.p_flags & PF_X != 0);
        let address = bias.checked_add(segment.p_vaddr).ok_or(Errno::ENOEXEC)?;
        let start = page_floor(address);
        let end = address.checked_add(segment.p_memsz).ok_or(Errno::ENOEXEC)?;
        let lead = address - start;
        let backing = Backing {
            bytes: bytes.clone(),
            offset: segment.p_offset.checked_sub(lead).ok_or(Errno::ENOEXEC)?,
            end: segment.p_offset.checked_add(segment.p_filesz).ok_or(Errno::ENOEXEC)?,
        };
        space.map(start, end - start, protection, Some(backing))?;
        if (segment.p_offset..segment.p_offset + segment.p_filesz).contains(&file.ehdr.e_phoff) {
            image.headers = address + (file.ehdr.e_phoff - segment.p_offset);
        }
        image.end = image.end.max(page_ceil(end));
    }
    if image.end == 0 {
        return Err(Errno::ENOEXEC);
    }
    Ok(image)
}

/// Follows `#!` lines (at most four) to the program itself. Returns its bytes, and changes path and arguments
/// accordingly.
fn find_program(path: &mut String, arguments: &mut Vec<String>) -> Result<Bytes> {
    for _ in 0..4 {
        let node = fs::lookup(path, true)?;
        let bytes = node.read_whole()?;
        let Some(rest) = bytes.get().strip_prefix(b"#!") else { return Ok(bytes) };
        let line = rest.split(|byte| *byte == b'\n').next().unwrap_or(b"");
        let line = core::str::from_utf8(line).map_err(|_| Errno::ENOEXEC)?.trim();
        let (interpreter, argument) = line.split_once(' ').unwrap_or((line, ""));
        if !arguments.is_empty() {
            arguments.remove(0);
        }
        arguments.insert(0, path.clone());
        if !argument.trim().is_empty() {
            arguments.insert(0, String::from(argument.trim()));
        }
        arguments.insert(0, String::from(interpreter));
        *path = String::from(interpreter);
    }
    Err(Errno::ELOOP)
}

/// Replaces the program of the running process. On success `frame` has the registers that start the new program.
///
/// # Errors
/// Those of Linux's execve. The old program then continues.
#[inline(never)]
pub fn replace(path: &str, arguments: Vec<String>, environment: Vec<String>, frame: &mut TrapFrame) -> Result<()> {
    let (mut path, mut arguments) = (String::from(path), arguments);
    let given_path = path.clone();
    let bytes = find_program(&mut path, &mut arguments)?;
    let space = AddressSpace::new().ok_or(Errno::ENOMEM)?;
    let image = load(&space, &bytes)?;
    space.map(STACK_TOP - STACK_BYTES, STACK_BYTES, Protection::READ | Protection::WRITE, None)?;

    let process = process::current().ok_or(Errno::ESRCH)?;
    process.set_space(Arc::new(space));
    process.signals.reset_for_exec();
    process.files.lock().close_on_exec();
    process.brk_start.store(image.end, Ordering::Relaxed);
    process.brk.store(image.end, Ordering::Relaxed);
    thread::rename_current(short_name(&given_path));
    *process.program.lock() = path;
    let thread = thread::current().ok_or(Errno::ESRCH)?;
    thread.fs_base.store(0, Ordering::Relaxed);
    x86_64::registers::model_specific::FsBase::write(x86_64::VirtAddr::new(0));
    thread::FxState::new().restore();

    *frame = TrapFrame {
        marker: frame.marker,
        rip: image.entry,
        cs: USER_CODE as u64,
        rflags: 0x202,
        rsp: build_stack(&image, &given_path, &arguments, &environment)?,
        ss: USER_DATA as u64,
        ..TrapFrame::default()
    };
    Ok(())
}

/// Writes strings, auxv, environment and arguments to the new stack (System V ABI, 3.4.1). Returns the stack pointer.
fn build_stack(image: &Image, path: &str, arguments: &[String], environment: &[String]) -> Result<u64> {
    let mut at = STACK_TOP - 64;
    let mut push = |bytes: &[u8], end: &[u8]| -> Result<u64> {
        at -= (bytes.len() + end.len()) as u64;
        user::write(at, bytes)?;
        user::write(at + bytes.len() as u64, end)?;
        Ok(at)
    };
    let path = push(path.as_bytes(), &[0])?;
    let mut addresses =
        |strings: &[String]| strings.iter().map(|s| push(s.as_bytes(), &[0])).collect::<Result<Vec<_>>>();
    let arguments = addresses(arguments)?;
    let environment = addresses(environment)?;
    let random = push(&random::bytes16(), &[])?;

    let mut words = Vec::new();
    words.push(arguments.len() as u64);
    words.extend(arguments);
    words.push(0);
    words.extend(environment);
    words.push(0);
    let mut auxv = alloc::vec![
        (AT_PAGESZ, PAGE),
        (AT_BASE, 0),
        (AT_ENTRY, image.entry),
        (AT_UID, 0),
        (AT_EUID, 0),
        (AT_GID, 0),
        (AT_EGID, 0),
        (AT_SECURE, 0),
        (AT_RANDOM, random),
        (AT_EXECFN, path),
    ];
    if image.headers != 0 {
        auxv.extend([(AT_PHDR, image.headers), (AT_PHENT, 56), (AT_PHNUM, image.header_count)]);
    }
    words.extend(auxv.into_iter().flat_map(|(kind, value)| [kind, value]));
    words.extend([0, 0]);

    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let start = (at - bytes.len() as u64) & !15;
    user::write(start, &bytes)?;
    Ok(start)
}
