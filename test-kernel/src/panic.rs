//! The panic handler: stops the other CPUs, prints the reason and a back trace with names, and powers the machine off.
//!
//! It takes no lock that another CPU could hold, allocates nothing, and reads only inside the running stack.

use core::arch::asm;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::cpu::{self, CPUS, apic, order};
use crate::memory::{paging, stacks};
use crate::power::{self, ExitCode};
use crate::{log, symbols};

static PANICKED: AtomicBool = AtomicBool::new(false);

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    x86_64::instructions::interrupts::disable();
    if PANICKED.swap(true, Ordering::SeqCst) {
        // This is a panic inside the panic handler, or on a second CPU at the same time. Only the first one is printed.
        loop {
            x86_64::instructions::hlt();
        }
    }
    stop_others();
    log::break_lock();
    log!("\nPANIC on CPU {}: {info}", cpu::id());
    back_trace();
    crate::profiling::on_panic();
    power::power_off(ExitCode::Panic)
}

fn stop_others() {
    let me = cpu::id();
    for (index, cpu) in CPUS.iter().enumerate() {
        if index != me && cpu.online.load(Ordering::Relaxed) {
            cpu.nmi_order.store(order::STOP, Ordering::SeqCst);
            apic::send_nmi(cpu.apic_id.load(Ordering::Relaxed));
        }
    }
}

/// Follows the frame pointers of the running stack.
fn back_trace() {
    let mut rbp: u64;
    // SAFETY: this only reads a register.
    unsafe { asm!("mov {}, rbp", out(reg) rbp, options(nomem, nostack, preserves_flags)) };
    let base = rbp & !(stacks::STACK_BYTES - 1);
    let end = base + stacks::STACK_BYTES;
    let (text_start, text_end) = paging::text_range();
    for depth in 0..64 {
        if !rbp.is_multiple_of(8) || rbp < base || rbp + 16 > end {
            break;
        }
        // SAFETY: both words are in the running stack, which is mapped as a whole.
        let (next, address) = unsafe { (*(rbp as *const u64), *((rbp + 8) as *const u64)) };
        if (text_start..text_end).contains(&address) {
            match symbols::find(address - 1) {
                Some((name, offset)) => log!("{depth:3}: {address:#x} {name} + {:#x}", offset + 1),
                None => log!("{depth:3}: {address:#x}"),
            }
        } else if address >= kprof::format::marker::MARKER_PAGE {
            // This is the frame of an entry stub. The interrupted instruction is above its marker.
            // SAFETY: as above; the test keeps the third word in the stack also if this is no stub's frame.
            let rip = if rbp + 24 <= end { unsafe { *((rbp + 16) as *const u64) } } else { 0 };
            log!("{depth:3}: entry, interrupted {rip:#x} {}", symbols::find(rip).map_or("", |(name, _)| name));
        } else {
            break;
        }
        if next <= rbp {
            break;
        }
        rbp = next;
    }
}
