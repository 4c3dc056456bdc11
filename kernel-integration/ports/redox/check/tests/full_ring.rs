//! A ring without a reader becomes full. Records in it stay whole, and records that do not fit are counted.
#![cfg(target_arch = "x86_64")]

use std::sync::atomic::Ordering;

use kprof_daemon::read::redox_raw::RawRecords;
use kprof_daemon::read::Item;
use redox_check::arch::interrupt::InterruptStack;
use redox_check::cpu_set::LogicalCpuId;
use redox_check::kernel_executable_offsets::__text_start;
use redox_check::machine::{self, aligned, poke, states};
use redox_check::percpu::PercpuBlock;
use redox_check::profiling::{self, sampler::IS_PROFILING};
use redox_check::startup::ENV;
use redox_check::syscall::usercopy::UserSliceWo;

#[test]
fn a_full_ring_loses_the_new_ones_and_says_so() {
    ENV.set("KPROF_HZ=20000").unwrap();
    machine::boot(2);
    profiling::ready_for_profiling();
    PercpuBlock::current()
        .switch_internals
        .current_dbg_id
        .store(5, Ordering::SeqCst);
    // 300 frames are more than a record can have.
    let (stack, text) = (aligned(64 * 1024), __text_start());
    let frame = |number: usize| stack + 0x1000 + 0x40 * number;
    for number in 0..300 {
        poke(
            frame(number),
            if number < 299 { frame(number + 1) } else { 0 },
        );
        poke(frame(number) + 8, text + 0x400 + number);
    }
    let mut state = InterruptStack::default();
    state.iret.rip = text + 0x300;
    state.iret.cs = 8;
    state.iret.rsp = frame(0) - 0x20;
    state.preserved.rbp = frame(0);
    states().lock().unwrap().insert(0, state);
    machine::start_sampler(1);
    machine::wait_for("timer");
    IS_PROFILING.store(true, Ordering::SeqCst);
    // 32768 words have space for about 130 of these records, so the ring is full soon, even if the host does not reach
    // 20 kHz.
    machine::until("a full ring", || machine::counter(0, "lost-full") > 10);
    IS_PROFILING.store(false, Ordering::SeqCst);
    let account = machine::wait_for("cpu 0: sent");
    let count = |name: &str| -> usize { machine::shown(&account, name) };
    let (recorded, lost) = (count("recorded"), count("lost-full"));
    assert!(
        lost > 0 && (100..200).contains(&recorded),
        "{recorded} recorded, {lost} lost"
    );
    assert_eq!(count("taken"), recorded + lost);

    let mut buffer = vec![0; 1 << 20];
    let bytes =
        profiling::drain_buffer(LogicalCpuId::new(0), UserSliceWo::of(&mut buffer)).unwrap();
    let mut samples = 0;
    for item in RawRecords::new(&buffer[..bytes], 0) {
        let Item::Sample(sample) = item else {
            panic!("{item:?}")
        };
        let addresses: Vec<u64> = sample.stack.iter().collect();
        assert_eq!(
            addresses.len(),
            240,
            "28 frames were a false root; 240 hold any real stack"
        );
        assert!(addresses[1..]
            .iter()
            .zip(0..)
            .all(|(address, number)| *address == (text + 0x400 + number) as u64));
        samples += 1;
    }
    assert_eq!(samples, recorded);
}
