//! System calls on paths and folders.

use alloc::string::String;
use core::sync::atomic::Ordering;

use super::file;
use crate::errno::{Errno, Result};
use crate::fs::file::{OpenFile, flags};
use crate::fs::{self, Kind, Stat};
use crate::memory::user;
use crate::task::process;

/// Stands for the current folder.
pub const AT_FDCWD: u64 = -100i64 as u64;
pub const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
pub const AT_REMOVEDIR: u64 = 0x200;
const AT_EMPTY_PATH: u64 = 0x1000;
/// The flags of `creat`.
pub const CREATE: u32 = flags::CREATE | flags::WRITE_ONLY | flags::TRUNCATE;

/// The absolute path that a call names.
fn resolve(folder: u64, address: u64) -> Result<String> {
    let path = user::read_path(address)?;
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    let base = match folder as i32 {
        -100 => process::current().ok_or(Errno::ENOENT)?.folder.lock().clone(),
        _ if path.starts_with('/') => String::new(),
        number => file::get(number as u64)?.path.clone(),
    };
    Ok(fs::absolute(&base, &path))
}

pub fn open(folder: u64, address: u64, flag_bits: u32, mode: u32) -> Result<u64> {
    let path = resolve(folder, address)?;
    let process = process::current().ok_or(Errno::ENOENT)?;
    let write = flag_bits & 3 != 0;
    let node = match fs::lookup(&path, flag_bits & flags::NO_FOLLOW == 0) {
        Ok(_) if flag_bits & (flags::CREATE | flags::EXCLUSIVE) == flags::CREATE | flags::EXCLUSIVE => {
            return Err(Errno::EEXIST);
        }
        Ok(node) => node,
        Err(Errno::ENOENT) if flag_bits & flags::CREATE != 0 => {
            let (parent, name) = fs::lookup_parent(&path)?;
            match parent.create(name, Kind::File, mode & !process.umask.load(Ordering::Relaxed)) {
                // Another process has created it meanwhile.
                Err(Errno::EEXIST) if flag_bits & flags::EXCLUSIVE == 0 => {
                    fs::lookup(&path, flag_bits & flags::NO_FOLLOW == 0).map_err(|_| Errno::EEXIST)?
                }
                created => created?,
            }
        }
        Err(error) => return Err(error),
    };
    let kind = node.stat()?.kind;
    match kind {
        Kind::Folder if write => return Err(Errno::EISDIR),
        Kind::Link => return Err(Errno::ELOOP),
        kind if kind != Kind::Folder && flag_bits & flags::FOLDER != 0 => return Err(Errno::ENOTDIR),
        _ => {}
    }
    let node = match kind {
        Kind::Folder => node,
        _ => node.open(write)?.unwrap_or(node),
    };
    if flag_bits & flags::TRUNCATE != 0 && write && kind == Kind::File {
        node.truncate(0)?;
    }
    let close_on_exec = flag_bits & flags::CLOSE_ON_EXEC != 0;
    let kept = flag_bits & (3 | flags::APPEND | flags::NON_BLOCKING | flags::FOLDER);
    process.files.lock().insert(OpenFile::new(node, path, kept), close_on_exec, 0)
}

/// Writes Linux's `struct stat` for x86-64.
pub fn write_stat(stat: &Stat, address: u64) -> Result<u64> {
    let mut bytes = [0u8; 144];
    let mut put = |offset: usize, value: u64| bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
    put(0, stat.device);
    put(8, stat.inode);
    put(16, 1);
    put(24, (stat.kind as u32 | stat.mode) as u64);
    put(40, if matches!(stat.kind, Kind::Device | Kind::Block) { 0x100 + stat.inode } else { 0 });
    put(48, stat.size);
    put(56, 4096);
    put(64, stat.size.div_ceil(512));
    for offset in [72, 88, 104] {
        put(offset, stat.changed_s);
    }
    user::write(address, &bytes)?;
    Ok(0)
}

pub fn stat(folder: u64, address: u64, target: u64, flag_bits: u64) -> Result<u64> {
    if flag_bits & AT_EMPTY_PATH != 0 && user::read_string(address)?.is_empty() {
        return file::fstat(folder, target);
    }
    let node = fs::lookup(&resolve(folder, address)?, flag_bits & AT_SYMLINK_NOFOLLOW == 0)?;
    write_stat(&node.stat()?, target)
}

/// All processes are root, so everything that exists can be accessed.
pub fn access(folder: u64, address: u64) -> Result<u64> {
    fs::lookup(&resolve(folder, address)?, true).map(|_| 0)
}

pub fn truncate(address: u64, bytes: u64) -> Result<u64> {
    let node = fs::lookup(&resolve(AT_FDCWD, address)?, true)?;
    node.truncate(bytes).map(|()| 0)
}

pub fn change_mode(folder: u64, address: u64, mode: u32) -> Result<u64> {
    fs::lookup(&resolve(folder, address)?, true)?.set_mode(mode).map(|()| 0)
}

pub fn current_folder(address: u64, bytes: u64) -> Result<u64> {
    let mut folder = process::current().ok_or(Errno::ENOENT)?.folder.lock().clone();
    folder.push('\0');
    if folder.len() as u64 > bytes {
        return Err(Errno::ERANGE);
    }
    user::write(address, folder.as_bytes())?;
    Ok(folder.len() as u64)
}

pub fn change_folder(address: u64) -> Result<u64> {
    let path = resolve(AT_FDCWD, address)?;
    if fs::lookup(&path, true)?.stat()?.kind != Kind::Folder {
        return Err(Errno::ENOTDIR);
    }
    *process::current().ok_or(Errno::ENOENT)?.folder.lock() = path;
    Ok(0)
}

pub fn rename(from_folder: u64, from: u64, to_folder: u64, to: u64) -> Result<u64> {
    let (from, to) = (resolve(from_folder, from)?, resolve(to_folder, to)?);
    let (from_parent, from_name) = fs::lookup_parent(&from)?;
    let (to_parent, to_name) = fs::lookup_parent(&to)?;
    from_parent.rename(from_name, &*to_parent, to_name).map(|()| 0)
}

pub fn make_folder(folder: u64, address: u64, mode: u32) -> Result<u64> {
    let path = resolve(folder, address)?;
    let (parent, name) = fs::lookup_parent(&path)?;
    let umask = process::current().ok_or(Errno::ENOENT)?.umask.load(Ordering::Relaxed);
    parent.create(name, Kind::Folder, mode & !umask).map(|_| 0)
}

pub fn unlink(folder: u64, address: u64, flag_bits: u64) -> Result<u64> {
    let path = resolve(folder, address)?;
    let (parent, name) = fs::lookup_parent(&path)?;
    parent.remove(name, flag_bits & AT_REMOVEDIR != 0).map(|()| 0)
}

pub fn symlink(target: u64, folder: u64, address: u64) -> Result<u64> {
    let target = user::read_string(target)?;
    let path = resolve(folder, address)?;
    let (parent, name) = fs::lookup_parent(&path)?;
    parent.symlink(name, &target).map(|()| 0)
}

pub fn read_link(folder: u64, address: u64, target: u64, bytes: u64) -> Result<u64> {
    let path = resolve(folder, address)?;
    let text = match path.as_str() {
        "/proc/self/exe" => process::current().ok_or(Errno::ENOENT)?.program.lock().clone(),
        path => fs::lookup(path, false)?.link_target()?,
    };
    let bytes = text.len().min(bytes as usize);
    user::write(target, &text.as_bytes()[..bytes])?;
    Ok(bytes as u64)
}

/// `getdents64`: writes as many whole entries as fit. The file's position is the index of the next entry.
pub fn entries(number: u64, address: u64, bytes: u64) -> Result<u64> {
    let folder = file::get(number)?;
    let names = folder.node.entries()?;
    let first = folder.seek(0, 1)? as usize;
    let mut done = 0;
    let mut index = first;
    let special = [(String::from("."), Kind::Folder), (String::from(".."), Kind::Folder)];
    for (name, kind) in special.iter().chain(&names).skip(first) {
        let length = (19 + name.len() + 1).next_multiple_of(8);
        if done + length as u64 > bytes {
            if done == 0 {
                return Err(Errno::EINVAL);
            }
            break;
        }
        index += 1;
        let mut entry = alloc::vec![0u8; length];
        entry[..8].copy_from_slice(&(index as u64).to_le_bytes());
        entry[8..16].copy_from_slice(&(index as u64).to_le_bytes());
        entry[16..18].copy_from_slice(&(length as u16).to_le_bytes());
        entry[18] = kind.entry_type();
        entry[19..19 + name.len()].copy_from_slice(name.as_bytes());
        user::write(address + done, &entry)?;
        done += length as u64;
    }
    folder.seek(index as i64, 0)?;
    Ok(done)
}
