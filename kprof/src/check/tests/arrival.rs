//! Whether the check of the sampler CPU sends a tick where no table of entries shows that NMIs arrive, and says if one
//! does not.

use super::*;

/// A processor without a table of entries.
struct NoTable;

impl Machine for NoTable {
    fn gate(&self, _: u8) -> Option<Gate> {
        None
    }
    fn interrupt_stack(&self, _: u8) -> Option<u64> {
        None
    }
    fn nmi_vector(&self) -> Option<u8> {
        None
    }
    fn ticks(&self) -> u64 {
        0
    }
    unsafe fn code(&self, _: u64) -> u64 {
        0
    }
}

#[test]
fn without_a_table_of_entries_a_tick_shows_whether_nmis_arrive() {
    let checked = |trigger, running, arrive: bool| {
        let profiler: &'static Profiler<Port> = Box::leak(Box::new(Profiler::new(Port::right())));
        let kernel = &profiler.instance.kernel;
        kernel.cpu.store(0, Relaxed);
        if arrive {
            kernel.profiler.set(profiler).unwrap_or_else(|_| unreachable!("set once"));
        }
        set_up(&profiler.instance, &NoExtension, Config { trigger, running, ..config(TSC_HZ) }, &[1]);
        let found = arrives(&profiler.instance, &NoTable);
        (found, profiler.instance.shared.slots()[1].sampler.tick.load(Relaxed))
    };
    assert_eq!(checked(Trigger::Nmi, true, true), (Ok(()), 1));
    assert_eq!(checked(Trigger::Nmi, true, false), (Err(CheckError::NoTick(1)), 1));
    // Nothing is sent while sampling is off, and an ordinary interrupt may be masked for a while.
    assert_eq!(checked(Trigger::Nmi, false, false), (Ok(()), 0));
    assert_eq!(checked(Trigger::Ipi, true, false), (Ok(()), 0));
    let said = CheckError::NoTick(1).to_string();
    assert!(said.contains("sent to cpu 1") && said.contains("no samples of code"), "{said}");
}
