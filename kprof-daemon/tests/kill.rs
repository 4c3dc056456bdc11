//! A real process, killed by a real SIGKILL at random instants, on the real file system.
//!
//! In: the simulated kernel in this process, which serves a socket; the daemon's session in a child process that runs
//! this program again. Out: after the last restart every sample that was in a ring counts once. The program has its own
//! `main`, because it runs as both sides. `KPROF_KILLS=N` changes the number of kills, 100.

#[path = "daemon/support/mod.rs"]
mod support;

use kprof_daemon::drain_loop::{Options, Session};
use kprof_daemon::pace::Pace;
use kprof_daemon::signals::Signals;
use kprof_daemon::source::kprof_device::KprofDevice;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::Random;
use support::kernel::Kernel;
use support::remote::{Remote, SERVED, serve};
use support::{reader, scenario, system};

/// The environment variable of the child with the path of the kernel's socket. Its arguments are the sample file and
/// the form.
const SOCKET: &str = "KPROF_TEST_SOCKET";
const SIGKILL: i32 = 9;
/// A daemon is killed after fewer requests than this. They cover its start and several rounds.
const REQUESTS: u64 = 24;

fn main() {
    if let Some(socket) = std::env::var_os(SOCKET) {
        return daemon(Path::new(&socket));
    }
    let kills = std::env::var("KPROF_KILLS").map_or(100, |kills| kills.parse().expect("KPROF_KILLS is a number"));
    kill_often(kills);
}

fn daemon(socket: &Path) {
    let output: PathBuf = std::env::args_os().nth(1).expect("the sample file").into();
    let mut system = Remote::connect(socket).expect("the kernel is there");
    let signals = Signals::installed().expect("signals");
    let source = KprofDevice::open(&mut system, Path::new(system::SCHEME)).expect("the source is free");
    let options = Options::new(output);
    let ended = Session::open(&mut system, source, options, signals)
        .and_then(|mut session| session.run(|_, _| Some(Pace::LONGEST)));
    if let Err(error) = ended {
        eprintln!("{error}");
        std::process::exit(i32::from(error.exit_code()));
    }
}

fn start(socket: &Path, output: &Path) -> Child {
    let this = std::env::current_exe().expect("this program");
    Command::new(this).arg(output).env(SOCKET, socket).spawn().expect("the daemon starts")
}

/// Waits until the kernel has answered this many requests since `before`. Waiting for a fixed time would not do,
/// because a busy host may not have run the daemon at all.
fn until_served(child: &mut Child, before: u64, requests: u64) {
    let start = Instant::now();
    while SERVED.load(Ordering::Relaxed) < before + requests {
        assert_eq!(child.try_wait().expect("it can be asked for"), None, "it has ended by itself");
        assert!(start.elapsed() < Duration::from_secs(120), "the daemon asks for nothing");
        std::thread::sleep(Duration::from_micros(50));
    }
}

fn kill_often(kills: u32) {
    let folder = tempfile::tempdir().expect("a folder");
    let (socket, output) = (folder.path().join("kernel"), folder.path().join("profiling.txt"));
    let listener = UnixListener::bind(&socket).expect("a socket");
    let kernel = Arc::new(Mutex::new(Kernel::new(&[1, 2, 3], 1 << 15, 4242)));
    let server = Arc::clone(&kernel);
    std::thread::spawn(move || serve(&listener, &server));

    let mut random = Random(2026);
    let (mut in_a_batch, mut before_ack, began) = (0, 0, Instant::now());
    for kill in 0..kills {
        let before = SERVED.load(Ordering::Relaxed);
        let mut child = start(&socket, &output);
        until_served(&mut child, before, random.below(REQUESTS));
        std::thread::sleep(Duration::from_micros(random.below(2_000)));
        child.kill().expect("SIGKILL is sent");
        let status = child.wait().expect("it ends");
        assert_eq!(status.signal(), Some(SIGKILL), "kill {kill}: it had ended by itself: {status:?}");
        let bytes = std::fs::read(&output).unwrap_or_default();
        let reading = reader::read(&[bytes]);
        in_a_batch += usize::from(reading.void_batches > 0);
        let kernel = kernel.lock().expect("not poisoned");
        let told = |cpu: &str| kernel.rings.get(&cpu.parse().ok()?).map(|ring| ring.tail);
        before_ack += usize::from(reading.ends.iter().any(|((_, cpu), end)| told(cpu).is_some_and(|told| told < *end)));
    }
    let before = SERVED.load(Ordering::Relaxed);
    let mut child = start(&socket, &output);
    until_served(&mut child, before, 2 * REQUESTS);
    // The shell's builtin `kill` is used, because the program `kill` is in a package that may be missing.
    let sent = Command::new("sh").args(["-c", "kill -TERM $0", &child.id().to_string()]).status().expect("sh runs");
    assert!(sent.success());
    let status = child.wait().expect("it ends");
    assert!(status.success(), "the last session: {status:?}");

    let reading = reader::read(&[std::fs::read(&output).expect("the file")]);
    let kernel = kernel.lock().expect("not poisoned");
    let samples = reading.samples.len();
    scenario::exactly_once_in(&kernel, &reading).unwrap();
    assert!(samples > 5 * kills as usize, "a run worth killing: {samples} samples");
    assert!(kernel.rings.values().all(|ring| ring.tail == ring.head), "all is acknowledged");
    println!(
        "{kills} kills in {:.1} s, {in_a_batch} inside a write, {before_ack} between a write and its ack: {samples} samples, \
         each once",
        began.elapsed().as_secs_f64()
    );
    assert!(kills < 100 || before_ack > 0, "no kill has hit the gap that matters");
}
