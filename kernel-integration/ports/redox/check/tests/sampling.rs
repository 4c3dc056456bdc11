//! Four CPUs, the last of which is the sampler: checks the samples of `profiling-0` when the kernel makes its usual
//! calls.
//!
//! In: stacks and user pages that the test prepares. Out: raw words, read by the daemon's own reader. This is a single
//! test, because the drop-in's state exists once per process.
#![cfg(target_arch = "x86_64")]

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kprof_daemon::read::redox_raw::RawRecords;
use kprof_daemon::read::Item;
use redox_check::arch::gdt::pcr;
use redox_check::arch::idt::{Idt, IdtEntry};
use redox_check::arch::interrupt::syscall::{
    __generic_interrupts_start, redox_check_key_stub, redox_check_page_stub, syscall_instruction,
};
use redox_check::arch::interrupt::InterruptStack;
use redox_check::context;
use redox_check::cpu_set::LogicalCpuId;
use redox_check::kernel_executable_offsets::__text_start;
use redox_check::machine::{self, aligned, poke, states};
use redox_check::percpu::PercpuBlock;
use redox_check::profiling::{self, sampler::IS_PROFILING};
use redox_check::syscall::error::{Error, EBADFD, EFAULT, EINVAL};
use redox_check::syscall::usercopy::UserSliceWo;

const USER_CS: usize = 0x2b;
const INTERRUPTS_ON: usize = 1 << 9;
const TASK: u32 = 77;

/// A sample: context, first address, callers.
type Sample = (u64, u64, Vec<u64>);

/// All samples of a CPU, as the daemon reads them.
fn drain(cpu: u32) -> Vec<Sample> {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        match profiling::drain_buffer(LogicalCpuId::new(cpu), UserSliceWo::of(&mut buffer)).unwrap()
        {
            0 => break,
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
    samples(&bytes)
}

fn samples(bytes: &[u8]) -> Vec<Sample> {
    let mut records = RawRecords::new(bytes, 0);
    let samples = records
        .by_ref()
        .map(|item| match item {
            Item::Sample(sample) => {
                let mut addresses = sample.stack.iter();
                (sample.task, addresses.next().unwrap(), addresses.collect())
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(records.used_bytes(), bytes.len(), "whole records only");
    samples
}

/// Gives a CPU this state until it was sampled some more times. Returns the samples.
fn sampled(cpu: u32, state: &InterruptStack) -> Vec<Sample> {
    states().lock().unwrap().insert(cpu as usize, state.clone());
    drain(cpu);
    let mut all = Vec::new();
    // Waits up to two minutes, because the host may be busy.
    for _ in 0..24_000 {
        all.extend(drain(cpu));
        if all.len() >= 5 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(
        all.len() >= 5,
        "{} samples; {:#?}",
        all.len(),
        machine::logged()
    );
    all
}

fn set_task(cpu: usize, id: u32) {
    machine::on(cpu, || {
        PercpuBlock::current()
            .switch_internals
            .current_dbg_id
            .store(id, Ordering::SeqCst)
    });
}

#[test]
fn redox_calls_it_as_ever_and_gets_right_samples() {
    machine::power_on(4);
    // SAFETY: in the order of the kernel's start: counted, tables, each CPU.
    unsafe { profiling::allocate(4) };
    assert!(
        profiling::cpu_exists(LogicalCpuId::new(2)) && !profiling::cpu_exists(LogicalCpuId::new(3))
    );
    let text = __text_start();
    check_tables();
    for cpu in 0..4 {
        // SAFETY: as above.
        machine::on(cpu, || unsafe { profiling::init() });
    }

    // CPUs 1 and 2 are not ready yet. The other CPUs must not wait for them.
    machine::start_sampler(3);
    machine::on(0, profiling::ready_for_profiling);
    let line = machine::wait_for("timer");
    let hz = |after: &str| {
        line.split(after)
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    // The stand-in's timer counts nanoseconds. A busy host wakes late, so the timer can only appear slower.
    assert!(
        (10_000_000..1_050_000_000).contains(&hz("timer ")),
        "calibrated by sleeping: {line}"
    );
    assert!(
        (100_000_000..10_000_000_000).contains(&hz("TSC ")),
        "calibrated by sleeping: {line}"
    );
    let words = profiling::drain_buffer(LogicalCpuId::new(1), UserSliceWo::of(&mut [0; 64]));
    assert_eq!(words, Ok(0), "CPU 1 is not ready: nothing to read yet");
    assert_eq!(
        profiling::drain_buffer(LogicalCpuId::new(3), UserSliceWo::of(&mut [0; 64])),
        Err(Error::new(EBADFD)),
        "the sampler has no stream"
    );

    set_task(0, TASK);
    IS_PROFILING.store(true, Ordering::SeqCst);
    // A stack with two frames: 0x600 in the text was called from 0x500, and 0x500 from 0x400.
    let stack = aligned(64 * 1024);
    let top = stack + 64 * 1024;
    let (inner, outer) = (top - 0x400, top - 0x300);
    [
        (inner, outer),
        (inner + 8, text + 0x500),
        (outer, 0),
        (outer + 8, text + 0x400),
    ]
    .into_iter()
    .for_each(|(address, word)| poke(address, word));
    let mut kernel = InterruptStack::default();
    kernel.iret.rip = text + 0x600;
    kernel.iret.cs = 8;
    kernel.iret.rflags = INTERRUPTS_ON;
    kernel.iret.rsp = inner - 0x40;
    kernel.preserved.rbp = inner;
    let expected = (
        u64::from(TASK),
        (text + 0x600) as u64,
        vec![(text + 0x500) as u64, (text + 0x400) as u64],
    );
    for sample in sampled(0, &kernel) {
        assert_eq!(
            sample, expected,
            "kernel code with interrupts on is a sample"
        );
    }
    // CPU 1 becomes ready later. Each CPU is signalled by its APIC id.
    set_task(1, TASK);
    machine::on(1, profiling::ready_for_profiling);
    assert_eq!(sampled(1, &kernel)[0], expected);

    // A frame pointer outside of all stacks ends the walk.
    let mut wild = kernel.clone();
    wild.preserved.rbp = 0xdead_beef_0000;
    for sample in sampled(0, &wild) {
        assert_eq!(sample.2, [], "no caller is guessed");
    }
    check_user();
    check_borders(&kernel, inner, outer);

    check_reads(&kernel, &expected);
    check_idle(&kernel);

    // With CPU 2 ready too there are two pauses at each tick.
    set_task(0, TASK);
    machine::on(2, profiling::ready_for_profiling);
    sampled(0, &kernel);

    machine::until("200 gaps", || intervals().len() > 200);
    IS_PROFILING.store(false, Ordering::SeqCst);
    machine::wait_for("cpu 2: sent");
    check_account();
    check_intervals();
    check_instants();
}

/// A tick's NMIs are some tens of microseconds apart, never the same.
fn check_instants() {
    let nmis = machine::NMIS.lock().unwrap().clone();
    let apart = |pair: &[(usize, Instant)]| {
        (pair[0].0 + 1 == pair[1].0).then(|| (pair[1].1 - pair[0].1).as_nanos())
    };
    let mut apart: Vec<u128> = nmis.windows(2).filter_map(apart).collect();
    apart.sort_unstable();
    let part = |percent: usize| apart[apart.len() * percent / 100];
    assert!(
        part(50) > 30_000,
        "the CPUs are not hit at the same instant: half are within {} ns",
        part(50)
    );
    assert!(
        part(90) > part(10) + 20_000,
        "random: {} to {} ns",
        part(10),
        part(90)
    );
}

/// The sampler CPU has its own gates, and those of other CPUs are not changed.
fn check_tables() {
    let mut idt = Idt {
        entries: [IdtEntry::default(); 256],
        reserved: Vec::new(),
    };
    profiling::maybe_setup_timer(&mut idt, LogicalCpuId::new(1));
    assert!(idt.entries.iter().all(|entry| entry.func.is_none()) && idt.reserved.is_empty());
    profiling::maybe_setup_timer(&mut idt, LogicalCpuId::new(3));
    assert!(idt.entries[32].func.is_some() && idt.reserved == [32]);
    assert!(
        idt.entries[redox_check::ipi::IpiKind::Tlb as usize]
            .func
            .is_none(),
        "TLB shootdowns are answered as ever"
    );
    assert!(idt.entries[33].func.is_some() && idt.entries[254].func.is_some());
}

/// User code: the walk reads the frames of the user's chain, at their addresses inside the page.
fn check_user() {
    let page = 0x7000;
    let memory = machine::map_user(page);
    let (inner, outer) = (page + 0x120, page + 0x230);
    poke(memory, 0x666);
    poke(memory + 8, 0x666);
    poke(memory + 0x120, outer);
    poke(memory + 0x128, 0x1304);
    poke(memory + 0x230, 0);
    poke(memory + 0x238, 0x1030);
    let mut user = InterruptStack::default();
    user.iret.rip = 0x11b3;
    user.iret.cs = USER_CS;
    user.iret.rflags = INTERRUPTS_ON;
    user.iret.rsp = inner - 16;
    user.preserved.rbp = inner;
    for sample in sampled(0, &user) {
        assert_eq!(sample, (u64::from(TASK), 0x11b3, vec![0x1304, 0x1030]));
    }
    // Nothing is mapped at this address, so the sample has no callers.
    user.preserved.rbp = 0x9000;
    assert_eq!(sampled(0, &user)[0], (u64::from(TASK), 0x11b3, vec![]));
}

/// The five words that the processor pushes.
fn put_frame(at: usize, rip: usize, cs: usize, rsp: usize) {
    for (index, word) in [rip, cs, INTERRUPTS_ON, rsp, 0].into_iter().enumerate() {
        poke(at + 8 * index, word);
    }
}

/// Where CPU 0 enters the kernel. Returns where it was before.
fn set_top_of_stack(top: usize) -> usize {
    // SAFETY: the task state segment of CPU 0, which nothing else changes.
    unsafe {
        let place = &raw mut (*pcr()).tss.rsp;
        let before = place.read_unaligned();
        place.write_unaligned([top as u64, 0, 0]);
        before[0] as usize
    }
}

/// System calls, exceptions, interrupts: the walk continues with the interrupted code.
fn check_borders(kernel: &InterruptStack, inner: usize, outer: usize) {
    let iret_at = |frame: usize| frame + 16 + core::mem::offset_of!(InterruptStack, iret);
    // The outer function was called by the syscall stub, which has saved a user's registers above it.
    let stub = syscall_instruction as *const () as usize + 64;
    poke(outer, 0x7120);
    poke(outer + 8, stub);
    put_frame(iret_at(outer), 0x11b3, USER_CS, 0x7100);
    let text = __text_start();
    let at = sampled(0, kernel)[0].clone();
    assert_eq!(
        at.2,
        [text + 0x500, stub, 0x11b3, 0x1304, 0x1030].map(|address| address as u64),
        "syscall, user callers"
    );

    // Now by the stubs of a page fault and of the keyboard (which saves nine registers), from kernel
    // code whose frame is above.
    let above = outer + 0x200;
    let stubs: [(unsafe extern "C" fn(), usize); 2] = [
        (redox_check_page_stub, iret_at(outer)),
        (redox_check_key_stub, outer + 16 + 9 * 8),
    ];
    for (stub, hardware_frame) in stubs {
        let stub = stub as *const () as usize + 50;
        poke(outer, above);
        poke(outer + 8, stub);
        (outer + 16..outer + 0x100)
            .step_by(8)
            .for_each(|address| poke(address, 0x1111));
        put_frame(hardware_frame, text + 0x700, 8, outer + 0x100);
        [(above, 0), (above + 8, text + 0x300)]
            .into_iter()
            .for_each(|(address, word)| poke(address, word));
        let at = sampled(0, kernel)[0].clone();
        assert_eq!(
            at.2,
            [text + 0x500, stub, text + 0x700, text + 0x300].map(|address| address as u64)
        );
    }
    assert!(inner < outer);

    // In the first instructions of a stub, and in an entry of the table: from kernel code, then from
    // the user's.
    let in_table = __generic_interrupts_start as *const () as usize + 2;
    for stub in [redox_check_page_stub as *const () as usize + 3, in_table] {
        let hardware_frame = outer + 0x40;
        let mut inside = kernel.clone();
        inside.iret.rip = stub;
        inside.preserved.rbp = above;
        inside.iret.rsp = hardware_frame - 16;
        put_frame(hardware_frame, text + 0x700, 8, hardware_frame + 40);
        let callers = [text + 0x700, text + 0x300].map(|address| address as u64);
        assert_eq!(sampled(0, &inside)[0].2, callers, "from kernel code");
        let top = set_top_of_stack(inner + 0x80);
        inside.iret.rsp = inner + 0x80 - 64;
        inside.preserved.rbp = 0x7120;
        put_frame(inner + 0x80 - 40, 0x11b3, USER_CS, 0x7100);
        assert_eq!(
            sampled(0, &inside)[0].2,
            [0x11b3, 0x1304, 0x1030],
            "from user code"
        );
        set_top_of_stack(top);
    }

    // In the stub itself, still on the user's stack. The user's address is in rcx.
    let mut early = kernel.clone();
    early.iret.rip = syscall_instruction as *const () as usize;
    early.iret.rsp = 0x7100;
    early.preserved.rbp = 0x7120;
    early.scratch.rcx = 0x11b3;
    assert_eq!(
        sampled(0, &early)[0].2,
        [0x11b3, 0x1304, 0x1030],
        "the first instruction of the syscall stub"
    );
    poke(outer, 0);
    poke(outer + 8, text + 0x400);
}

/// Reads of any length give whole records. A read that fails does not consume a record.
fn check_reads(kernel: &InterruptStack, expected: &Sample) {
    sampled(0, kernel);
    machine::until("60 samples", || machine::counter(0, "in-ring") >= 60);
    let cpu = LogicalCpuId::new(0);
    assert_eq!(
        profiling::drain_buffer(cpu, UserSliceWo::of(&mut [])),
        Ok(0)
    );
    assert_eq!(
        profiling::drain_buffer(cpu, UserSliceWo::of(&mut [0; 7])),
        Err(Error::new(EINVAL)),
        "too small"
    );
    assert_eq!(
        profiling::drain_buffer(cpu, UserSliceWo::unmapped(4096)),
        Err(Error::new(EFAULT))
    );
    // A record has six words, so 101 bytes have space for two records and a rest.
    let mut all = Vec::new();
    for length in [101, 49, 1003, 4096 + 5] {
        let mut buffer = vec![0; length];
        let count = profiling::drain_buffer(cpu, UserSliceWo::of(&mut buffer)).unwrap();
        assert!(count > 0 && count.is_multiple_of(8) && count <= length);
        all.extend(samples(&buffer[..count]));
    }
    assert!(all.len() > 10, "{}", all.len());
    all.iter().for_each(|sample| assert_eq!(sample, expected));
}

/// Samples of the idle context are filtered and counted. An interrupt of the idle context is not idle.
fn check_idle(kernel: &InterruptStack) {
    states().lock().unwrap().remove(&0);
    drain(0);
    for id in [context::idle_id(0), u32::MAX] {
        set_task(0, id);
        let before = machine::counter(0, "idle");
        states().lock().unwrap().insert(0, kernel.clone());
        machine::until("10 idle ticks", || {
            machine::counter(0, "idle") >= before + 10
        });
        assert_eq!(drain(0), [], "idle: {id}");
    }
}

/// The account in the log at the end: every tick is accounted for.
fn check_account() {
    let log = machine::logged();
    for cpu in [0, 1] {
        let line = machine::wait_for(&format!("kprof: cpu {cpu}: sent"));
        let count = |name: &str| machine::shown(&line, name);
        assert!(count("sent") > 10);
        assert_eq!(count("sent"), count("taken") + count("coalesced"));
        let lost = count("lost-full") + count("lost-nested");
        assert_eq!(
            count("taken"),
            count("user") + count("idle") + lost + count("recorded")
        );
        assert_eq!(count("idle") > 0, cpu == 0);
        assert_eq!(count("lost-full"), 0);
    }
    let lines = log.iter().filter(|line| line.contains(": sent ")).count();
    assert_eq!(lines, 3, "one line for each CPU: {log:#?}");
    assert!(
        log.iter()
            .any(|line| line.contains("CPU 3 samples 3 CPU(s), 256 KiB of ring each")),
        "{log:#?}"
    );
}

/// The counts with which the timer was started for a whole interval, not for the rest of one.
fn intervals() -> Vec<u32> {
    let mut counts = machine::TIMER_COUNTS.lock().unwrap().clone();
    counts.retain(|count| (100_000..1_400_000).contains(count) && *count != 1_200_000);
    counts
}

/// They vary around a millisecond and are never far above it.
fn check_intervals() {
    let mut counts = intervals();
    counts.sort_unstable();
    let spread = |part: usize| f64::from(counts[counts.len() * part / 100]);
    assert!(
        spread(90) > 1.2 * spread(10),
        "random: {} to {}",
        spread(10),
        spread(90)
    );
    counts.dedup();
    assert!(counts.len() > 150, "hardly two gaps are the same");
}
