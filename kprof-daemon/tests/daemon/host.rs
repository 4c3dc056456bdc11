//! The real system, without the daemon: what its calls do to files, links, pipes and terminals.
//!
//! In: files in a temporary folder. Out: what was opened, and with which rights. (The group `system calls` shows under
//! strace which calls are made; the simulated system shows what the daemon does with their errors.)

use kprof_daemon::system::host::Host;
use kprof_daemon::system::{FileFacts, Open, System};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

fn pipe_at(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn a_probe_of_a_pipe_that_nobody_writes_returns_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    pipe_at(&path);
    // Without O_NONBLOCK, each of these calls would not return until somebody writes.
    for how in [Open::Probe, Open::ProbeNoLink] {
        Host::default().open(&path, how).unwrap();
    }
}

#[test]
fn only_probes_without_links_and_new_files_of_a_rotation_refuse_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let (target, link) = (folder.path().join("target"), folder.path().join("link"));
    fs::write(&target, "content").unwrap();
    symlink(&target, &link).unwrap();
    for (how, follows) in [
        (Open::Read, true),
        (Open::Probe, true),
        (Open::ProbeNoLink, false),
        (Open::ReadWrite, true),
        (Open::SampleFile, true),
        (Open::NextFile, false),
    ] {
        assert_eq!(Host::default().open(&link, how).is_ok(), follows);
    }
    assert_eq!(fs::read(&target).unwrap(), b"content");
}

#[test]
fn a_new_file_is_private_and_one_that_everybody_may_read_becomes_so() {
    let folder = tempfile::tempdir().unwrap();
    for (name, how) in [("sample", Open::SampleFile), ("next", Open::NextFile)] {
        let path = folder.path().join(name);
        Host::default().open(&path, how).unwrap();
        assert_eq!(mode(&path), 0o600, "{name}");
    }
    for (before, after) in [(0o644, 0o600), (0o640, 0o600), (0o604, 0o600), (0o600, 0o600), (0o400, 0o400)] {
        let path = folder.path().join(format!("{before:o}"));
        let mut file = File::create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(before)).unwrap();
        Host::default().make_private(&mut file).unwrap();
        assert_eq!(mode(&path), after, "{before:o}");
    }
}

#[test]
fn the_rights_of_what_is_no_file_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    pipe_at(&path);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    Host::default().make_private(&mut File::options().read(true).write(true).open(&path).unwrap()).unwrap();
    assert_eq!(mode(&path), 0o644);
}

#[test]
fn a_pipe_needs_no_sync_and_another_error_of_sync_is_told() {
    let (_reader, writer) = io::pipe().unwrap();
    let mut pipe = File::from(std::os::fd::OwnedFd::from(writer));
    Host::default().sync(&mut pipe).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    Host::default().sync(&mut File::open(file.path()).unwrap()).unwrap();
    // O_PATH: a file whose content cannot be reached, so it cannot be synced (EBADF). QEMU's user emulation opens it as
    // any other.
    if cfg!(not(target_arch = "x86_64")) {
        return;
    }
    let mut name_only = File::options().read(true).custom_flags(libc::O_PATH).open(file.path()).unwrap();
    assert_eq!(Host::default().sync(&mut name_only).unwrap_err().raw_os_error(), Some(libc::EBADF));
    // Nor can it be locked, which is no reason to end: some systems have no locks.
    Host::default().lock(&mut name_only).unwrap();
}

#[test]
fn a_folder_is_synced_if_it_can_be_and_a_missing_one_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    Host::default().sync_folder(&folder.path().join("file")).unwrap();
    Host::default().sync_folder(Path::new("file-in-this-folder")).unwrap();
    Host::default().sync_folder(&folder.path().join("missing/file")).unwrap();
}

#[test]
fn facts_tell_files_from_pipes_and_devices() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("file"), folder.path().join("other"));
    fs::write(&path, "12345").unwrap();
    fs::hard_link(&path, &other).unwrap();
    let facts = |mut file: File| Host::default().facts_of(&mut file).unwrap().unwrap();
    assert_eq!(facts(File::open(&path).unwrap()), FileFacts { is_regular: true, names: 2, bytes: 5 });
    let pipe = folder.path().join("pipe");
    pipe_at(&pipe);
    let special = [File::options().read(true).write(true).open(&pipe).unwrap(), File::open("/dev/null").unwrap()];
    special.into_iter().for_each(|file| assert!(!facts(file).is_regular));
    let socket = std::os::unix::net::UnixStream::pair().unwrap().0;
    assert!(!facts(File::from(std::os::fd::OwnedFd::from(socket))).is_regular);
}

#[test]
fn a_second_lock_is_refused_until_the_first_file_is_closed() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let open = || Host::default().open(file.path(), Open::ReadWrite).unwrap();
    let (mut first, mut second) = (open(), open());
    Host::default().lock(&mut first).unwrap();
    assert_eq!(Host::default().lock(&mut second).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(first);
    Host::default().lock(&mut second).unwrap();
}

#[test]
fn a_full_pipe_is_not_writable_and_the_wait_ends_at_its_limit() {
    let (_reader, mut writer) = io::pipe().unwrap();
    let as_file = |writer: &io::PipeWriter| File::from(std::os::fd::OwnedFd::from(writer.try_clone().unwrap()));
    let limit = Duration::from_millis(30);
    assert!(Host::default().wait_writable(&mut as_file(&writer), limit).unwrap());
    // A pipe takes 64 KiB on Linux, where this test runs.
    writer.write_all(&vec![0; 64 << 10]).unwrap();
    let began = Instant::now();
    assert!(!Host::default().wait_writable(&mut as_file(&writer), limit).unwrap());
    assert!(began.elapsed() >= limit);
}

#[test]
fn a_file_is_renamed_and_shortened() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::write(&from, "content").unwrap();
    Host::default().rename(&from, &to).unwrap();
    assert!(!from.exists());
    let mut file = Host::default().open(&to, Open::ReadWrite).unwrap();
    Host::default().truncate(&mut file, 3).unwrap();
    assert_eq!(fs::read(&to).unwrap(), b"con");
    assert_eq!(Host::default().redox_task_name(&mut file, 1), None, "this is no Redox");
}

#[test]
fn a_sleep_takes_at_least_its_time() {
    let (mut host, time) = (Host::default(), Duration::from_millis(2));
    let before = host.now();
    host.sleep(time).unwrap();
    assert!(host.now() - before >= time);
}
