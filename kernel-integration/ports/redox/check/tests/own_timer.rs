//! aarch64: one CPU samples itself by the kernel's timer, and stacks go on through an entry stub.
//!
//! In: a kernel stack that the test prepares, and the frame that the stub's own code puts there. Out: raw words, read
//! by the daemon's own reader; the counts with which the timer is loaded. This is a single test, because the drop-in's
//! state exists once per process. It runs under QEMU's user emulation (`cargo xtask test --only emulated`).
#![cfg(target_arch = "aarch64")]

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kprof_daemon::read::redox_raw::RawRecords;
use kprof_daemon::read::Item;
use redox_check::arch::device::cpu::registers::control_regs::CONTROL;
use redox_check::arch::interrupt::{stubs, InterruptStack};
use redox_check::arch::profiling::{clock_hz, entries};
use redox_check::cpu_set::LogicalCpuId;
use redox_check::kernel_executable_offsets::{__entry_start, __text_end};
use redox_check::machine;
use redox_check::percpu::PercpuBlock;
use redox_check::profiling;
use redox_check::startup::ENV;
use redox_check::syscall::usercopy::UserSliceWo;

const STACK: usize = 16 * 4096;
const EL1_MASKED: usize = 0x3c5;
const EL1: usize = 0x345;
const EL0: usize = 0;
const USER_PC: usize = 0x40_1000;
const USER_SP: usize = 0x7f_0000;

/// What a stub has saved.
fn saved(pc: usize, spsr: usize, fp: usize, link: usize) -> InterruptStack {
    let mut saved = InterruptStack::default();
    (saved.iret.elr_el1, saved.iret.spsr_el1, saved.iret.sp_el0) = (pc, spsr, USER_SP);
    (saved.preserved.x29, saved.preserved.x30) = (fp, link);
    saved
}

/// Puts it there, with the class of an exception, and returns its address.
fn put(at: usize, class: usize, mut saved: InterruptStack) -> *mut InterruptStack {
    saved.iret.esr_el1 = class << 26 | 0x1ff_ffff;
    let place = at as *mut InterruptStack;
    // SAFETY: the test's memory.
    unsafe { place.write_volatile(saved) };
    place
}

/// The address and the words of the frame that a stub leaves below what it has saved.
fn frame(
    stub: unsafe extern "C" fn(*mut InterruptStack) -> *const [u64; 6],
    saved: *mut InterruptStack,
) -> (u64, [u64; 6]) {
    // SAFETY: the test's memory, here and below.
    let frame = unsafe { stub(saved) };
    assert_eq!(
        frame as usize + 48,
        saved as usize,
        "the saved registers are above it"
    );
    // SAFETY: as above.
    (frame as u64, unsafe { frame.read() })
}

/// All samples: the first address, and the others.
fn drain() -> Vec<(u64, Vec<u64>)> {
    let mut buffer = vec![0; 64 * 1024];
    let bytes =
        profiling::drain_buffer(LogicalCpuId::new(0), UserSliceWo::of(&mut buffer)).unwrap();
    let sample = |item| match item {
        Item::Sample(sample) => {
            let mut addresses = sample.stack.iter();
            (addresses.next().unwrap(), addresses.collect())
        }
        other => panic!("{other:?}"),
    };
    RawRecords::new(&buffer[..bytes], 0).map(sample).collect()
}

/// The timer interrupts until there is a sample.
fn sample(stack: &InterruptStack) -> (u64, Vec<u64>) {
    let start = Instant::now();
    loop {
        CONTROL.store(0b101, Ordering::SeqCst);
        profiling::interrupted(stack);
        if let Some(sample) = drain().pop() {
            return sample;
        }
        assert!(
            start.elapsed() < Duration::from_secs(120),
            "no sample: {:#?}",
            machine::logged()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_cpu_samples_itself_and_stacks_go_on_through_the_stubs() {
    machine::power_on(1);
    ENV.set("KPROF_HZ=1000\nKPROF_START=1").unwrap();
    let stack = machine::aligned(STACK);
    let (kernel, function) = (__text_end() - 64, __text_end() - 128);

    // The stub of system calls has interrupted user code, at the top of the stack.
    let top = stack + STACK - size_of::<InterruptStack>();
    let call = put(top, 0x15, saved(USER_PC, EL0, 0x1234, 0x5678));
    let (call, [fp, marker, pc, spsr, sp, _]) = frame(stubs::exception, call);
    assert_eq!(
        (marker, pc, spsr, sp),
        (entries::CALL as u64, USER_PC as u64, 0, USER_SP as u64)
    );
    assert_ne!(fp, 0, "x29 as it was");
    // Another exception of the kernel has its class; SP is where the stub began.
    let other = put(stack + STACK / 2, 0x25, saved(kernel, EL1, 0, 0));
    let (_, [_, marker, pc, spsr, sp, _]) = frame(stubs::exception, other);
    assert_eq!(
        (marker, pc, spsr),
        (entries::EXCEPTION as u64 + 0x25, kernel as u64, EL1 as u64)
    );
    assert_eq!(sp as usize, other as usize + size_of::<InterruptStack>());
    let (_, [_, marker, ..]) = frame(stubs::irq, other);
    assert_eq!(marker, entries::IRQ as u64);

    // SAFETY: once.
    unsafe { profiling::init(0) };
    profiling::ready_for_profiling();
    assert!(machine::logged()
        .iter()
        .any(|line| line.contains("1000 Hz, by this CPU's timer")));
    assert!(
        profiling::cpu_exists(LogicalCpuId::new(0)) && !profiling::cpu_exists(LogicalCpuId::new(1))
    );

    // The idle context has none.
    let (task, start) = (
        &PercpuBlock::current().switch_internals.current_dbg_id,
        Instant::now(),
    );
    while machine::counter(0, "idle") == 0 {
        assert!(
            start.elapsed() < Duration::from_secs(120),
            "no tick: {:#?}",
            machine::logged()
        );
        CONTROL.store(0b101, Ordering::SeqCst);
        profiling::interrupted(&saved(kernel, EL1, 0, 0));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(drain(), []);
    task.store(77, Ordering::SeqCst);

    // An interrupt of another device takes no sample.
    CONTROL.store(0b001, Ordering::SeqCst);
    for _ in 0..10 {
        profiling::interrupted(&saved(kernel, EL1, 0, 0));
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(drain(), []);

    // A function that the system call has called: its record leads to the stub's.
    let record = (call as usize - 64) as *mut [u64; 2];
    // SAFETY: the test's memory.
    unsafe { record.write_volatile([call, __entry_start() as u64 + 16]) };
    let at = put(
        record as usize - 512,
        0,
        saved(kernel, EL1, record as usize, function),
    );
    // SAFETY: as above.
    let (first, callers) = sample(unsafe { &*at });
    assert_eq!(first, kernel as u64);
    assert_eq!(callers.last(), Some(&(USER_PC as u64)), "{callers:x?}");
    assert!(
        callers.contains(&(__entry_start() as u64 + 16)),
        "{callers:x?}"
    );
    // User code has its own address only.
    assert_eq!(
        sample(&saved(USER_PC, EL0, 0x7f_0010, 0)),
        (USER_PC as u64, vec![])
    );
    // A stack that is not known is not read.
    assert_eq!(sample(&saved(kernel, EL1_MASKED, 8, 0)).0, kernel as u64);

    // The kernel's period is kept, whatever is wanted for samples in between.
    let period = (clock_hz() / 100) as u32;
    assert!(profiling::is_period_over());
    for _ in 0..3 {
        let (mut counted, mut loads) = (0, 0);
        loop {
            let load = profiling::counts(period);
            (counted, loads) = (counted + load, loads + 1);
            if profiling::is_period_over() {
                break;
            }
        }
        assert_eq!(counted, period);
        assert!(loads > 1, "the timer interrupts for samples too");
    }
}
