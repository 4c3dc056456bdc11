//! The control file and framed records, through the functions that the debug scheme calls.
#![cfg(target_arch = "x86_64")]

use std::sync::atomic::Ordering;

use kprof::ReadError;
use kprof_daemon::read::framed::Framed;
use kprof_daemon::read::Item;
use redox_check::arch::interrupt::InterruptStack;
use redox_check::cpu_set::LogicalCpuId;
use redox_check::kernel_executable_offsets::__text_start;
use redox_check::machine::{self, aligned, states};
use redox_check::percpu::PercpuBlock;
use redox_check::profiling;
use redox_check::profiling::control;
use redox_check::startup::ENV;
use redox_check::sync::CleanLockToken;
use redox_check::syscall::error::{Error, EAGAIN, EBUSY, EINVAL};
use redox_check::syscall::usercopy::{UserSliceRo, UserSliceWo};
use redox_check::ArrayString;

fn token() -> CleanLockToken {
    // SAFETY: a token of the stand-in.
    unsafe { CleanLockToken::new() }
}

fn write(handle: usize, commands: &str) -> Result<usize, Error> {
    control::write(handle, UserSliceRo(commands.as_bytes()), &mut token())
}

/// The text of ctl, read in small pieces.
fn state(handle: usize) -> String {
    let (mut text, mut buffer) = (Vec::new(), [0; 100]);
    loop {
        match control::read(
            handle,
            UserSliceWo::of(&mut buffer),
            text.len() as u64,
            &mut token(),
        )
        .unwrap()
        {
            0 => return String::from_utf8(text).unwrap(),
            bytes => text.extend_from_slice(&buffer[..bytes]),
        }
    }
}

/// One read of CPU 0's stream, as the daemon reads it: the number of samples, and the position after them.
fn samples() -> (usize, Option<u64>) {
    let mut bytes = vec![0; 4096];
    let count = control::read_stream(
        LogicalCpuId::new(0),
        UserSliceWo::of(&mut bytes),
        &mut token(),
    )
    .unwrap();
    let mut records = Framed::new(&bytes[..count], None);
    let samples = records
        .by_ref()
        .inspect(|item| assert!(matches!(item, Item::Sample(_)), "{item:?}"))
        .count();
    assert_eq!(records.used_bytes(), count);
    (samples, records.position())
}

#[test]
fn a_daemon_gets_everything_again_that_it_has_not_acknowledged() {
    machine::boot(2);
    // A context that ran before kprof was set up.
    profiling::name_context(4, ArrayString("[early]"), &mut token());
    profiling::ready_for_profiling();
    let id = &PercpuBlock::current().switch_internals.current_dbg_id;
    id.store(5, Ordering::SeqCst);
    let mut kernel = InterruptStack::default();
    kernel.iret.rip = __text_start() + 0x300;
    kernel.iret.cs = 8;
    kernel.iret.rsp = aligned(64 * 1024) + 0x8000;
    states().lock().unwrap().insert(0, kernel);
    machine::start_sampler(1);
    machine::wait_for("timer");
    machine::until("CPU 0 is registered", || {
        state(9).contains("cpu.0.in-ring ")
    });
    profiling::name_context(5, ArrayString("shell"), &mut token());
    assert!(
        state(9).contains("\nmeta.lost 0\n"),
        "a name that was given before the set-up is not lost: {}",
        state(9)
    );

    assert_eq!(write(1, "hz 0\n"), Err(Error::new(EINVAL)));
    assert!(
        state(1).lines().last().unwrap().starts_with("error line 1"),
        "{}",
        state(1)
    );
    assert_eq!(write(1, "protocol 1\nhz 100\nstart\n"), Ok(24));
    assert_eq!(
        write(2, "protocol 1\n"),
        Err(Error::new(EBUSY)),
        "one reader at a time"
    );
    machine::until("a few samples", || samples_in_ring() >= 4);
    assert_eq!(write(1, "stop\n"), Ok(5));
    assert!(
        state(1).contains("\nstate stopped\n") && state(1).contains("\nhz 100\n"),
        "{}",
        state(1)
    );
    assert!(
        !state(1).contains("\nboot 1\n"),
        "boots are told apart: {}",
        state(1)
    );
    assert!(
        state(1).contains("\nanchor __generic_interrupts_start="),
        "another build's symbols are noticed: {}",
        state(1)
    );

    let (first, end) = samples();
    assert!(first >= 4);
    control::close(1);
    assert_eq!(write(2, "protocol 1\n"), Ok(11));
    assert_eq!(samples(), (first, end), "not acknowledged: all of it again");
    let ack = format!("ack 0 {}\n", end.unwrap());
    assert_eq!(write(2, &ack), Ok(ack.len()));
    control::close(2);
    assert_eq!(write(3, "protocol 1\n"), Ok(11));
    assert_eq!(samples().0, 0, "acknowledged: gone");
    assert!(
        state(1).contains(&format!("cpu.0.delivered {first}\n")),
        "{}",
        state(1)
    );
    let meta = || {
        let mut names = vec![0; 4096];
        let bytes = control::read_meta(UserSliceWo::of(&mut names), &mut token()).unwrap();
        names.truncate(bytes);
        names
    };
    let has = |names: &[u8], name: &[u8]| names.windows(name.len()).any(|text| text == name);
    let names = meta();
    assert!(has(&names, b"shell") && has(&names, b"[early]"));
    let state = state(3);
    let end = state
        .lines()
        .find_map(|line| line.strip_prefix("meta.position-in "))
        .unwrap();
    let ack = format!("ack meta {end}\n");
    assert_eq!(write(3, &ack), Ok(ack.len()));
    control::close(3);
    assert_eq!(write(4, "protocol 1\n"), Ok(11));
    let names = meta();
    assert!(
        has(&names, b"[early]") && has(&names, b"shell"),
        "the next reader gets the names again"
    );
    let name = profiling::lookup_dbg_id(4, &mut token());
    assert_eq!(name.as_deref(), Some("[early]"));
    let start = std::time::Instant::now();
    assert_eq!(write(4, "wait 100\n"), Ok(9));
    assert!(
        start.elapsed().as_millis() >= 100,
        "the writer sleeps, because no ring fills"
    );

    ENV.set("KPROF_KEYS=1\n").unwrap();
    for _ in 0..2 {
        profiling::serio_command(0, 30);
        machine::until("the key A starts sampling", || {
            crate::state(4).contains("\nstate running\n")
        });
        assert_eq!(write(4, "stop\n"), Ok(5));
    }
}

#[test]
fn a_reader_is_told_whether_to_try_again() {
    for (error, number) in [
        (ReadError::Claimed, EBUSY),
        (ReadError::Busy, EAGAIN),
        (ReadError::TooSmall(64), EINVAL),
        (ReadError::NotClaimed, EINVAL),
    ] {
        assert_eq!(control::errno(error), Error::new(number), "{error}");
    }
}

/// The number of samples in the ring, as the kernel counts it.
fn samples_in_ring() -> usize {
    let state = state(1);
    let line = state
        .lines()
        .find_map(|line| line.strip_prefix("cpu.0.in-ring "))
        .expect("CPU 0 is registered");
    line.parse().unwrap()
}
