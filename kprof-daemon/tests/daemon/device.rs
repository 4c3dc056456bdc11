//! The device files of the kernel by themselves, and the source that tells what is done with them.
//!
//! In: calls of a source, and the errors of the simulated system. Out: the errors of the source; what it says.

use crate::support;

use kprof_daemon::ctl::Ctl;
use kprof_daemon::error::Error;
use kprof_daemon::source::kprof_device::KprofDevice;
use kprof_daemon::source::{Source, Stream, Waited};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;
use support::kernel::Kernel;
use support::system::{SCHEME, Simulated};

fn open(cpus: u32) -> (Simulated, KprofDevice<Simulated>) {
    let cpus: Vec<u32> = (0..cpus).collect();
    let mut kernel = Kernel::new(&cpus, 1 << 10, 7);
    kernel.tick();
    let mut system = Simulated::new(kernel, Box::new(|_, _| {}));
    let device = KprofDevice::open(&mut system, Path::new(SCHEME)).unwrap();
    (system, device)
}

#[test]
fn a_state_that_is_longer_than_one_read_is_read_to_its_end() {
    let (mut system, mut device) = open(200);
    let length = system.0.borrow_mut().kernel.text(0).len();
    assert!(length > 2 * 16 * 1024, "several reads: {length} bytes");
    let mut ctl = Ctl::default();
    device.observe(&mut system, &mut ctl).unwrap();
    assert_eq!(ctl.cpus().count(), 200);
}

#[test]
fn a_stream_that_is_missing_is_empty_and_every_other_error_of_opening_it_is_told() {
    let (mut system, mut device) = open(2);
    let mut buffer = [0; 4096];
    assert_eq!(device.read(&mut system, Stream::Cpu(9), &mut buffer).unwrap(), 0);
    let mut fails = |kind| {
        system.0.borrow_mut().open_error = Some((format!("{SCHEME}/profiling-1").into(), kind));
        device.read(&mut system, Stream::Cpu(1), &mut buffer).unwrap_err()
    };
    assert!(matches!(fails(ErrorKind::ResourceBusy), Error::Busy { .. }));
    assert!(matches!(fails(ErrorKind::PermissionDenied), Error::SourceGone { during: "opening it", .. }));
    system.0.borrow_mut().open_error = None;
    assert!(device.read(&mut system, Stream::Cpu(1), &mut buffer).unwrap() > 0);
}

#[test]
fn a_command_is_refused_only_with_the_errors_of_a_refusal() {
    let (mut system, mut device) = open(1);
    let mut fails = |kind| {
        system.0.borrow_mut().ctl_error = Some(kind);
        device.command(&mut system, "start").unwrap_err()
    };
    assert!(matches!(fails(ErrorKind::InvalidInput), Error::Refused { .. }));
    assert!(matches!(fails(ErrorKind::ResourceBusy), Error::Busy { .. }));
    assert!(matches!(fails(ErrorKind::BrokenPipe), Error::SourceGone { .. }));
}

#[test]
fn a_signal_ends_a_wait_and_a_kernel_that_refuses_it_is_not_asked_again() {
    let (mut system, mut device) = open(1);
    let mut wait = |kind: Option<ErrorKind>| {
        system.0.borrow_mut().ctl_error = kind;
        device.wait(&mut system, Duration::from_millis(1))
    };
    assert_eq!(wait(Some(ErrorKind::Interrupted)).unwrap(), Waited::Waited);
    assert_eq!(wait(None).unwrap(), Waited::Waited);
    assert!(matches!(wait(Some(ErrorKind::BrokenPipe)), Err(Error::SourceGone { .. })));
    assert_eq!(wait(Some(ErrorKind::InvalidInput)).unwrap(), Waited::CannotWait);
    assert_eq!(wait(None).unwrap(), Waited::CannotWait);
    assert_eq!(system.0.borrow().kernel.waits, [1], "the kernel was asked no more");
}
