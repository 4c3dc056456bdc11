//! Stacks, descriptor tables, two entry stubs (NMI, on a stack of its own, and timer), the local APIC, what the clocks
//! count. Sources: Intel SDM volume 3A, chapters 6 and 11.

use core::arch::{global_asm, x86_64::_rdtsc};
use core::ops::Range;

use kprof::clock::{Calibration, Moment, Reference};
use kprof::{NmiToken, Registers, format::marker::MARKER_PAGE};
use spin::Once;
use x86_64::VirtAddr;
use x86_64::instructions::{interrupts, port::Port, tables::load_tss};
use x86_64::structures::gdt::{Descriptor, GlobalDescriptorTable};
use x86_64::structures::{idt::InterruptDescriptorTable, tss::TaskStateSegment};

use crate::profiling::PROFILER;

pub const MAX_CPUS: usize = 2;
pub const STACK_BYTES: usize = 64 * 1024;
const TIMER_VECTOR: u8 = 32;
/// What TSC and timer count.
pub static CLOCK: Once<Calibration> = Once::new();

/// The range of a stack.
pub fn stack(number: usize) -> Range<u64> {
    let start = &raw const stacks as u64 + (number * STACK_BYTES) as u64;
    start..start + STACK_BYTES as u64
}

// Above the frame are RIP, CS, RFLAGS, RSP, SS, by the processor. The marker stands where a return address would: the
// unwinder walks across it.
global_asm!(
    r#"
.macro entry_stub name, marker, handler
.global \name
\name:
    push {page} + \marker
    push rbp;  mov rbp, rsp
    push rax;  push rcx;  push rdx;  push rsi;  push rdi;  push r8;  push r9;  push r10;  push r11
    cld;  mov rdi, rbp;  call \handler
    pop r11;  pop r10;  pop r9;  pop r8;  pop rdi;  pop rsi;  pop rdx;  pop rcx;  pop rax
    pop rbp;  add rsp, 8;  iretq
.endm
entry_stub nmi_entry, 0x202, {nmi}
entry_stub timer_entry, 0x100 + {timer_vector}, {timer}
.global entry_end
entry_end:
"#,
    page = const MARKER_PAGE as i64, timer_vector = const TIMER_VECTOR, nmi = sym nmi, timer = sym timer,
);

unsafe extern "C" {
    fn nmi_entry();
    fn timer_entry();
    fn entry_end();
    static stacks: u8;
    pub static text_start: u8;
    pub static text_end: u8;
}

/// The code of the two stubs.
pub fn entry_code() -> core::ops::Range<u64> {
    nmi_entry as *const () as u64..entry_end as *const () as u64
}

extern "C" fn nmi(&[rbp, _, rip, cs, rflags, rsp]: &[u64; 6]) {
    // SAFETY: called by the NMI's stub only, with the registers it interrupted, on the NMI's own stack.
    PROFILER.on_nmi(&unsafe { NmiToken::new() }, &Registers { rip, cs, rflags, rsp, rbp, rcx: 0 });
}

extern "C" fn timer(&[rbp, _, rip, cs, rflags, rsp]: &[u64; 6]) {
    // SAFETY: called by the timer's stub only, with the registers it interrupted, interrupts off.
    let own = PROFILER.on_timer(&unsafe { NmiToken::new() }, &Registers { rip, cs, rflags, rsp, rbp, rcx: 0 });
    // A CPU that samples itself has done so, and says when it will next; for any other the timer comes for nothing.
    if CLOCK.is_completed() {
        start_timer(own.next_ns);
    }
    write_apic(0xb0, 0);
}

/// Loads this CPU's tables (code and data have the selectors of `boot`'s table) and turns its APIC on. Once.
pub fn set_up(cpu: usize) {
    static IDT: Once<InterruptDescriptorTable> = Once::new();
    static TSS: [Once<TaskStateSegment>; MAX_CPUS] = [const { Once::new() }; MAX_CPUS];
    static GDT: [Once<GlobalDescriptorTable>; MAX_CPUS] = [const { Once::new() }; MAX_CPUS];
    let (mut tss, mut gdt) = (TaskStateSegment::new(), GlobalDescriptorTable::new());
    tss.interrupt_stack_table[0] = VirtAddr::new(stack(MAX_CPUS + cpu).end);
    let tss = Descriptor::tss_segment(TSS[cpu].call_once(|| tss));
    let parts = [Descriptor::kernel_code_segment(), Descriptor::kernel_data_segment(), tss];
    let [_, _, tss] = parts.map(|descriptor| gdt.append(descriptor));
    GDT[cpu].call_once(|| gdt).load();
    // SAFETY: the selector is of the table just loaded, and the stubs build what their vectors need.
    unsafe {
        load_tss(tss);
        let mut idt = InterruptDescriptorTable::new();
        let [nmi, timer] = [nmi_entry, timer_entry].map(|stub| VirtAddr::new(stub as *const () as u64));
        idt.non_maskable_interrupt.set_handler_addr(nmi).set_stack_index(0);
        idt[TIMER_VECTOR].set_handler_addr(timer);
        IDT.call_once(|| idt).load();
    }
    // SAFETY: the data ports of the two 8259s, the old interrupt controllers: all masked.
    [0x21, 0xa1].into_iter().for_each(|port| unsafe { Port::<u8>::new(port).write(0xff) });
    // The APIC on, its timer one-shot and divided by one.
    write_apic(0xf0, 0x1ff);
    write_apic(0x3e0, 0b1011);
    write_apic(0x320, TIMER_VECTOR.into());
}

fn write_apic(register: usize, value: u32) {
    // SAFETY: the first 4 GiB are mapped one to one, the APIC's registers among them.
    unsafe { ((0xfee0_0000 + register) as *mut u32).write_volatile(value) }
}

fn read_apic(register: usize) -> u32 {
    // SAFETY: as in `write_apic`; reading has no effect.
    unsafe { ((0xfee0_0000 + register) as *const u32).read_volatile() }
}

/// The APIC id, which is the number of the CPU here. Right at any instruction.
pub fn cpu() -> usize {
    (read_apic(0x20) >> 24) as usize
}

/// Sends a command (0x4400: NMI) to a CPU.
pub fn signal(cpu: usize, command: u32) {
    while read_apic(0x300) & 1 << 12 != 0 {}
    write_apic(0x310, (cpu as u32) << 24);
    write_apic(0x300, command);
}

/// Makes the timer fire in `ns`.
pub fn start_timer(ns: u64) {
    let count = u128::from(ns) * u128::from(CLOCK.wait().timer_hz) / 1_000_000_000;
    write_apic(0x380, count.clamp(1, u128::from(u32::MAX)) as u32);
}

/// Sleeps for about `ns`, or until something else comes. Leaves interrupts off.
pub fn sleep_ns(ns: u64) {
    start_timer(ns);
    interrupts::enable_and_hlt();
    interrupts::disable();
}

/// Finds out what TSC and timer count: five sleeps, of which the middle one counts (others may have been interrupted).
pub fn calibrate() -> Calibration {
    let mut rounds = [20_000_000; 5].map(measure);
    rounds.sort_unstable_by_key(|round| round.tsc_hz);
    rounds[2]
}

/// Against the HPET, at its usual place.
fn measure(count: u32) -> Calibration {
    let hpet = |register: usize| (0xfed0_0000 + register) as *mut u64;
    // SAFETY: mapped as the APIC's registers are; the first says how long a count is in femtoseconds, 0x10 lets it
    // count.
    let femtoseconds = unsafe { (hpet(0x10).write_volatile(1), hpet(0).read_volatile() >> 32).1 };
    // SAFETY: reads two counters.
    let moment = || unsafe { Moment { tsc: _rdtsc(), reference: hpet(0xf0).read_volatile() } };
    let before = moment();
    write_apic(0x380, count);
    interrupts::enable_and_hlt();
    interrupts::disable();
    let reference = Reference { hz: 1_000_000_000_000_000 / femtoseconds, bits: 32 };
    Calibration::of(before, moment(), reference, count.into()).expect("the HPET counts")
}
