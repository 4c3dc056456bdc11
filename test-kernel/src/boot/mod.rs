//! From the first instruction in 64-bit mode to the first process.
//!
//! The boot CPU starts memory, clock and the other CPUs. Then it samples them, or runs its idle thread if nothing is
//! sampled. The rest (devices, files, init) is done by a kernel thread, because a thread can sleep.

pub mod early;
pub mod pvh;

use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use virtio_drivers::transport::{DeviceType, Transport};
use x86_64::instructions::port::Port;

use crate::cpu::{self, CPUS, apic, clock, idt, ioapic, smp, turns};
use crate::device::disk::Disk;
use crate::device::{acpi, pci, virtio};
use crate::fs::{self, block, device, ninep, ram};
use crate::memory::{self, paging, stacks};
use crate::task::{process, scheduler, thread};
use crate::{info, log, profiling, random, symbols, workload};

#[unsafe(no_mangle)]
extern "C" fn kmain(start_info: u64) -> ! {
    log::init();
    let info = info::keep(|| pvh::read(start_info));
    log!("kprof test kernel: {}", info.command_line);
    turns::init(
        (info.option("accel") == Some("icount")).then(|| info.number("instruction-ns", 1).max(1)),
        info.option("turns") == Some("shared"),
    );
    let early = profiling::samples_boot();
    if early {
        early::start(info);
    }
    let phase = |name| {
        if early {
            profiling::mark_phase(name);
        }
    };
    phase("memory");
    memory::init(info, profiling::inner_heap());
    random::init(info.option("random-seed").and_then(|text| text.parse().ok()));
    #[cfg(kprof_slower)]
    crate::syscall::SLOWER_CALL.store(info.number("slower-call", u64::MAX), core::sync::atomic::Ordering::Relaxed);
    symbols::init(info.initrd);

    phase("tables");
    let platform = acpi::read(info.rsdp);
    let boot_id = start_boot_cpu(&platform);
    if !early {
        mask_pic();
    }
    phase("clock");
    match platform.pm_timer_port {
        Some(port) => clock::calibrate(port),
        None => log!("clock: no PM timer, 1 GHz is assumed for TSC and APIC timer"),
    }
    cpu::set_sampler(profiling::wants_sampler());
    if !early {
        profiling::init();
        profiling::register_heap();
    }
    scheduler::adopt(stacks::boot_stack(), "idle 0");
    if early {
        early::go_on();
    }
    CPUS[0].online.store(true, Ordering::Release);
    phase("CPUs");
    let others: Vec<u32> = platform.apic_ids.iter().copied().filter(|id| *id != boot_id).collect();
    smp::start_all(&others[..others.len().min(cpu::MAX_CPUS - 1)]);
    paging::drop_identity_map();

    let pci_config = platform.pci_config;
    thread::spawn_kernel("start", move || start(pci_config));
    if early {
        early::stop();
    }
    if cpu::sampler() == Some(0) {
        profiling::run_sampler(0);
    }
    profiling::register(0);
    scheduler::idle_forever()
}

/// Sets up the boot CPU's own tables and local APIC, and the number of CPUs. Returns the boot CPU's APIC id.
#[inline(never)]
fn start_boot_cpu(platform: &acpi::Platform) -> u32 {
    apic::set_base(platform.local_apic);
    x86_64::instructions::interrupts::without_interrupts(|| {
        idt::init(0);
        apic::enable();
    });
    let boot_id = apic::id();
    CPUS[0].apic_id.store(boot_id, Ordering::Relaxed);
    cpu::set_count(platform.apic_ids.len());
    if let Some(io_apic) = platform.io_apic {
        ioapic::set_base(io_apic);
    }
    boot_id
}

/// The other CPUs begin here, with interrupts off, each on its own stack.
#[unsafe(no_mangle)]
extern "C" fn secondary_main(cpu: usize) -> ! {
    idt::init(cpu);
    apic::enable();
    let stack = CPUS[cpu].stacks[0].load(Ordering::Relaxed);
    profiling::register(cpu);
    scheduler::adopt(stack, &alloc::format!("idle {cpu}"));
    CPUS[cpu].online.store(true, Ordering::Release);
    // The low addresses are unmapped when all CPUs run. This CPU must not keep a stale translation of them.
    while paging::has_identity_map() {
        core::hint::spin_loop();
    }
    paging::load(paging::boot_tables());
    scheduler::idle_forever()
}

/// Masks the old interrupt controllers, because interrupts come from the I/O APIC.
fn mask_pic() {
    // SAFETY: these are the data ports of the two 8259s. The writes mask all lines.
    unsafe {
        Port::<u8>::new(0x21).write(0xff);
        Port::<u8>::new(0xa1).write(0xff);
    }
}

static NINEP_DEVICE: spin::Once<virtio::Device> = spin::Once::new();

/// Handles a device interrupt. Runs in: interrupt.
pub fn on_device_interrupt() {
    if let Some(device) = NINEP_DEVICE.get() {
        device.on_interrupt();
    }
    block::disks().for_each(Disk::on_interrupt);
}

/// The rest of the start. Runs in: a kernel thread.
fn start(pci_config: Option<u64>) {
    let info = info::info();
    let phase = |name| {
        if profiling::samples_boot() {
            profiling::mark_phase(name);
        }
    };
    if info.option("panic") == Some("boot") {
        panic!("a panic was asked for on the command line");
    }
    phase("files");
    ram::set_limit(info.number("ram-fs-mib", 128) as usize * 256);
    fs::mount("/", ram::from_cpio(info.initrd));
    fs::mount("/dev", device::dev_folder());
    fs::mount("/scheme", device::scheme_folder(profiling::device::folder()));
    fs::mount("/kernel", workload::folder(mount_share));
    PCI_CONFIG.call_once(|| pci_config);
    // A device does not answer after the same time in every run. A run that must be repeatable mounts it later.
    if info.option("share") != Some("late") {
        phase("devices");
        mount_share();
    }
    log!("boot: {} us, starting init", clock::now_ns() / 1000);
    let environment: Vec<String> = ["PATH=/bin", "HOME=/root"]
        .into_iter()
        .chain(info.command_line.split_ascii_whitespace().filter(|word| word.contains('=')))
        .map(String::from)
        .collect();
    let init = info.option("init").unwrap_or("/init");
    phase("init");
    if let Err(error) = process::spawn_init(init, alloc::vec![String::from(init)], environment) {
        panic!("init {init} cannot be started: {error:?}");
    }
}

static PCI_CONFIG: spin::Once<Option<u64>> = spin::Once::new();

/// Mounts the host's folder as /root. Returns `None` if this was tried before, or if there is no such device.
#[inline(never)]
pub fn mount_share() -> Option<()> {
    static TRIED: AtomicBool = AtomicBool::new(false);
    if TRIED.swap(true, Ordering::Relaxed) {
        return None;
    }
    find_devices((*PCI_CONFIG.get()?)?);
    NINEP_DEVICE.get().map(|_| ())
}

#[inline(never)]
fn find_devices(config: u64) {
    pci::find_virtio(config, |found| {
        match found.kind {
            DeviceType::_9P => {}
            DeviceType::Block => return block::attach(found),
            _ => return,
        }
        let mut transport = found.transport;
        transport.begin_init(virtio::FEATURES);
        let Some(device) = virtio::Device::new(transport, found.interrupt_line) else { return };
        match ninep::attach(NINEP_DEVICE.call_once(|| device)) {
            Ok(root) => {
                fs::mount("/root", root);
                log!("9p: the host's folder is /root");
            }
            Err(error) => log!("9p: {error:?}"),
        }
    });
}
