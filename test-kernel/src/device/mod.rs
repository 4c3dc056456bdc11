//! Devices on the PCI bus: the virtio transport and who uses it.

pub mod acpi;
pub mod pci;
pub mod virtio;
