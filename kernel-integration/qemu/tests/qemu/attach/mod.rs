//! `kprof-qemu attach` with a scripted stub: whatever ends it, the machine runs on, and the profile is a good one.

mod kernel;
mod session;
mod stub;

use self::stub::{Fault, Kind, Left, MOVED, Script, TEXT, serve};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const RUNS_ON: Left = Left { has_detached: true, is_running: true };

fn tool(address: &str, folder: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kprof-qemu"));
    command.args(["attach", "--gdb", address]).current_dir(folder.path());
    command
}

/// Runs the tool with a stub; gives its exit code, what it said, the profile, and how it has left the machine.
fn attach(script: Script, options: &[&str]) -> (Option<i32>, String, String, Left) {
    let folder = tempfile::tempdir().unwrap();
    let (address, stub) = serve(script);
    let Output { status, stderr, .. } = tool(&address.to_string(), &folder).args(options).output().unwrap();
    let profile = fs::read_to_string(folder.path().join("profiling.txt")).unwrap_or_default();
    (status.code(), String::from_utf8(stderr).unwrap(), profile, stub.join().unwrap())
}

/// The number of samples of a profile whose account balances.
fn samples(profile: &str) -> usize {
    let samples = profile.lines().filter(|line| line.starts_with("guest ")).count();
    let account =
        format!("# account cpu=0 sent={samples} taken={samples} coalesced=0 user=0 idle=0 kernel=0 lost-full=0 ");
    assert!(profile.lines().any(|line| line.starts_with(&account)), "{profile}");
    let of_batches = profile.lines().filter_map(|line| line.split_once(" samples=")?.1.split(' ').next());
    assert_eq!(of_batches.map(|count| count.parse::<usize>().unwrap()).sum::<usize>(), samples);
    samples
}

#[test]
fn every_kind_of_stub_is_sampled_and_detached_from() {
    for kind in [Kind::Qemu, Kind::NoAck, Kind::Strict] {
        let (code, said, profile, left) = attach(Script { kind, ..Script::default() }, &["--samples", "30"]);
        assert_eq!((code, left), (Some(0), RUNS_ON), "{said}");
        assert_eq!(samples(&profile), 30);
        let stack = format!(" {:x} {:x}", TEXT + 32, TEXT + 0x1000);
        assert!(
            profile.lines().filter(|line| line.starts_with("guest ")).all(|line| line.ends_with(&stack)),
            "{profile}"
        );
        assert!(said.contains("samples a second") && said.contains("of its speed"), "{said}");
    }
}

#[test]
fn a_stub_on_a_unix_socket_is_sampled_too() {
    let folder = tempfile::tempdir().unwrap();
    let (address, stub) = serve(Script::default());
    let listener = UnixListener::bind(folder.path().join("stub")).unwrap();
    // Passes on what each side sends, until the tool has gone.
    let between = std::thread::spawn(move || {
        let (mut tool, mut stub) = (listener.accept().unwrap().0, TcpStream::connect(address).unwrap());
        let (mut to_tool, mut from_stub) = (tool.try_clone().unwrap(), stub.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from_stub, &mut to_tool));
        std::io::copy(&mut tool, &mut stub).unwrap();
        stub.shutdown(Shutdown::Both).unwrap();
    });
    let done = tool("unix:stub", &folder).args(["--samples", "30"]).output().unwrap();
    between.join().unwrap();
    assert_eq!((done.status.code(), stub.join().unwrap()), (Some(0), RUNS_ON), "{done:?}");
    assert_eq!(samples(&fs::read_to_string(folder.path().join("profiling.txt")).unwrap()), 30);
    let none = tool("unix:none", &folder).output().unwrap();
    let said = String::from_utf8(none.stderr).unwrap();
    assert!(none.status.code() == Some(2) && said.contains("-gdb unix:none,server=on,wait=off"), "{said}");
}

#[test]
fn a_recorded_session_with_kvm_gives_the_same_stacks_at_exact_instructions() {
    let folder = tempfile::tempdir().unwrap();
    let (address, stub) = session::serve(include_str!("kvm.session"));
    let done = tool(&address.to_string(), &folder).args(["--samples", "4", "--hz", "200"]).output().unwrap();
    assert!(stub.join().unwrap() > 100 && done.status.code() == Some(0), "{done:?}");
    let profile = fs::read_to_string(folder.path().join("profiling.txt")).unwrap();
    assert!(profile.contains("\n# precision instruction\n"), "{profile}");
    assert!(profile.contains("\n# account cpu=0 sent=3 taken=3 coalesced=0 user=0 idle=2 "), "{profile}");
    let stacks = profile.lines().filter_map(|line| line.strip_prefix("guest ")?.splitn(3, ' ').nth(2));
    let first = "ffffffff80206aef fffffffffffff001 ffffffff80204c56 ffffffff80207096";
    // The innermost address, and the number of the others, all under the first function of the CPU.
    let others = [("ffffffff80206d63", 9), ("ffffffff8021bbb3", 4), ("ffffffff80206d63", 10)];
    let (of_0, of_1): (Vec<&str>, Vec<&str>) = stacks.partition(|stack| *stack == first);
    let ends: Vec<_> = of_1.iter().map(|it| (it.split(' ').next().unwrap(), it.split(' ').count() - 1)).collect();
    assert_eq!((of_0.len(), &ends[..]), (1, &others[..]), "{profile}");
    assert!(of_1.iter().all(|stack| stack.ends_with(" ffffffff80212af2 ffffffff80207137")), "{profile}");
}

#[test]
fn a_halted_vcpu_is_idle() {
    let script = Script { state: "CPU#0 [halted ]", ..Script::default() };
    let (code, said, profile, left) = attach(script, &["--duration", "0.3"]);
    assert_eq!((code, left), (Some(0), RUNS_ON), "{said}");
    assert!(said.contains(" 0 samples of 1 vCPUs") && !said.contains(" 0 idle"), "{said}");
    assert!(!profile.contains("\nguest "), "{profile}");
}

#[test]
fn a_signal_ends_it_and_the_machine_runs_on() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let folder = tempfile::tempdir().unwrap();
        let (address, stub) = serve(Script::default());
        let child = tool(&address.to_string(), &folder).stderr(Stdio::piped()).spawn().unwrap();
        let profile = folder.path().join("profiling.txt");
        while !profile.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let done = child.wait_with_output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!((done.status.code(), stub.join().unwrap()), (Some(0), RUNS_ON), "{said}");
        assert!(said.contains("ended by a signal; the machine runs on"), "{said}");
    }
}

#[test]
fn what_was_sampled_before_the_connection_ended_is_a_good_file() {
    for fault in [Fault::CloseAt(20), Fault::PowerOffAt(20)] {
        let (code, said, profile, _) = attach(Script { fault, ..Script::default() }, &[]);
        assert_eq!((code, samples(&profile)), (Some(0), 19), "{said}");
        assert!(said.contains("has ended the connection"), "{said}");
    }
}

#[test]
fn an_error_ends_it_with_a_good_file_and_the_machine_runs_on() {
    for (fault, expected) in
        [(Fault::NoRegistersAt(20), "no registers of x86_64: E01"), (Fault::SilentAt(20), "no answer for 5 s")]
    {
        let (code, said, profile, left) = attach(Script { fault, ..Script::default() }, &[]);
        assert_eq!((code, samples(&profile), left), (Some(2), 19, RUNS_ON), "{said}");
        assert!(said.contains(expected), "{said}");
    }
    let (code, said, _, left) = attach(Script::default(), &["-o", "missing/profile.txt"]);
    assert_eq!((code, left), (Some(2), RUNS_ON), "{said}");
    let (code, said, _, left) = attach(Script::default(), &["--cpu", "7"]);
    assert_eq!((code, left), (Some(2), RUNS_ON), "{said}");
    assert!(said.contains("no such vCPU"), "{said}");
}

/// Each sample looks whether the kernel is still there, so nothing is in doubt when the machine ends.
#[test]
fn at_a_power_off_no_sample_is_in_doubt_and_a_file_without_a_build_id_is_known_by_its_anchors() {
    let kernel = tempfile::NamedTempFile::new().unwrap();
    fs::write(kernel.path(), kernel::elf()).unwrap();
    let options = ["--hz", "500", "--kernel", kernel.path().to_str().unwrap()];
    let (_, said, profile, _) = attach(Script { fault: Fault::PowerOffAt(20), ..Script::default() }, &options);
    assert!(said.contains("has ended the connection") && said.contains("the kernel runs where "), "{said}");
    assert!(!said.contains("could not be compared"), "{said}");
    assert_eq!(samples(&profile), 19);
    assert!(profile.contains(&format!("\n# anchor work={TEXT:x}\n")), "{profile:.600}");
}

/// A stub does not say that the machine has rebooted.
#[test]
fn samples_of_a_kernel_that_may_have_moved_meanwhile_have_no_addresses() {
    let kernel = tempfile::NamedTempFile::new().unwrap();
    fs::write(kernel.path(), kernel::elf()).unwrap();
    let options = ["--samples", "60", "--hz", "500", "--kernel", kernel.path().to_str().unwrap()];
    for (fault, is_moved) in [(Fault::None, false), (Fault::MovedAt(30), true)] {
        let (_, said, profile, left) = attach(Script { fault, ..Script::default() }, &options);
        assert_eq!(left, RUNS_ON, "{said}");
        assert!(said.contains("the kernel runs where "), "{said}");
        assert_eq!(said.contains("the kernel runs elsewhere: where "), is_moved, "{said}");
        let boots: Vec<&str> = profile.split("# kprof-profile").skip(1).collect();
        assert_eq!(boots.len(), if is_moved { 2 } else { 1 }, "{profile}");
        let in_boot = |boot: usize, address: u64| {
            let word = format!(" {address:x}");
            boots[boot].lines().filter(|line| line.starts_with("guest ") && line.contains(&word)).count()
        };
        let (known, unknown) = (in_boot(0, TEXT + 32), in_boot(0, 1 << 63));
        // A second may be over before all samples are taken.
        let later = if is_moved { in_boot(1, TEXT + MOVED + 32) } else { 0 };
        assert_eq!(known + unknown + later, 60, "{profile}");
        assert!(if is_moved { known < 30 && unknown > 0 } else { unknown == 0 }, "{known}, {unknown}, {later}");
    }
}

/// `eprintln` panics if nobody reads what it prints.
#[test]
fn a_panic_ends_it_and_the_machine_runs_on() {
    let folder = tempfile::tempdir().unwrap();
    let (address, stub) = serve(Script { machine: "", ..Script::default() });
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let done = tool(&address.to_string(), &folder).stderr(writer).output().unwrap();
    assert_eq!((done.status.code(), stub.join().unwrap()), (Some(101), RUNS_ON));
}

#[test]
fn another_machine_is_refused_by_name_and_runs_on() {
    for machine in ["aarch64", "i386", "riscv:rv64"] {
        let (code, said, profile, left) = attach(Script { machine, ..Script::default() }, &[]);
        assert_eq!((code, profile.as_str(), left), (Some(2), "", RUNS_ON), "{said}");
        assert!(said.contains(&format!("another machine ({machine})")), "{said}");
    }
}

#[test]
fn what_is_no_stub_is_refused_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let said_by = |address: &str| {
        let done = tool(address, &folder).output().unwrap();
        assert_eq!(done.status.code(), Some(2));
        assert!(!folder.path().join("profiling.txt").exists());
        String::from_utf8(done.stderr).unwrap()
    };
    for (banner, expected) in [("SSH-2.0-OpenSSH_9.2\r\n", "something else than packets"), ("", "no answer for 5 s")] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.write_all(banner.as_bytes()).unwrap();
            let mut all = Vec::new();
            let _ = stream.read_to_end(&mut all);
            all
        });
        let said = said_by(&address);
        assert!(said.contains(expected) && said.contains("does not answer as a gdb stub"), "{said}");
        // A stub that reads all this later lets its machine run on.
        assert!(server.join().unwrap().ends_with(b"$D#44"));
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    assert!(said_by(&address).contains("no connection"));
    assert!(said_by("nowhere.invalid:1").contains("HOST:PORT is expected"));
}
