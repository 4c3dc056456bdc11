//! PCI: finds the virtio devices on bus 0 and enables them.

use virtio_drivers::transport::DeviceType;
use virtio_drivers::transport::pci::bus::{Cam, Command, ConfigurationAccess, DeviceFunction, MmioCam, PciRoot};
use virtio_drivers::transport::pci::{PciTransport, virtio_device_type};

use super::virtio::KernelHal;
use crate::memory::paging;

const ECAM_BYTES: u64 = 256 << 20;
const INTERRUPT_LINE: u8 = 0x3c;

/// A virtio device that was found.
pub struct Found {
    /// What it is.
    pub kind: DeviceType,
    /// The transport to communicate with it.
    pub transport: PciTransport,
    /// The interrupt line that the firmware has assigned to it.
    pub interrupt_line: u8,
}

/// Calls `each` with every virtio device on bus 0. In: the physical address of the configuration space.
pub fn find_virtio(config: u64, mut each: impl FnMut(Found)) {
    let base = paging::map_device(config, ECAM_BYTES);
    // SAFETY: according to the MCFG the configuration space is at this address, and only this function uses it.
    let access = |()| unsafe { MmioCam::new(base as *mut u8, Cam::Ecam) };
    let mut root = PciRoot::new(access(()));
    let reader = access(());
    let functions: alloc::vec::Vec<(DeviceFunction, DeviceType)> =
        root.enumerate_bus(0).filter_map(|(function, info)| Some((function, virtio_device_type(&info)?))).collect();
    for (function, kind) in functions {
        root.set_command(function, Command::MEMORY_SPACE | Command::BUS_MASTER);
        let interrupt_line = reader.read_word(function, INTERRUPT_LINE) as u8;
        match PciTransport::new::<KernelHal, _>(&mut root, function) {
            Ok(transport) => each(Found { kind, transport, interrupt_line }),
            Err(error) => crate::log!("pci: {function}: {error}"),
        }
    }
}
