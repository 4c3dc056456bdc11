//! Devices on the PCI bus: the virtio transport and the devices that use it.

pub mod acpi;
pub mod disk;
pub mod pci;
pub mod virtio;
