//! Block I/O: the points of a disk's requests, and what their two arguments mean.
//!
//! In: a request, or the arguments of a hit. Out: the other of the two. Runs in: any. Never allocates.
//!
//! ```text
//! argument 0   device << 48 | sector (of 512 bytes)
//! argument 1   bytes
//! ```
//!
//! A sector number has at most 48 bits, as in ATA commands: enough for a disk of 2^57 bytes.

/// The point of a read that the device has completed, with its nanoseconds.
pub const READ: &str = "block.read";
/// The point of a write that the device has completed, with its nanoseconds.
pub const WRITE: &str = "block.write";

const SECTOR_BITS: u32 = 48;
const MAX_SECTOR: u64 = (1 << SECTOR_BITS) - 1;

/// One request to a disk.
///
/// ```
/// use kprof_format::block::{READ, Request};
/// let request = Request { device: 1, sector: 2048, bytes: 4096 };
/// assert_eq!(request.arguments(), [0x0001_0000_0000_0800, 4096]);
/// assert_eq!(Request::of(READ, &request.arguments()), Some(request));
/// let far = Request { device: 1, sector: u64::MAX, bytes: 512 };
/// assert_eq!(Request::of(READ, &far.arguments()), Some(Request { sector: (1 << 48) - 1, ..far }));
/// assert_eq!(Request::of("null.write", &request.arguments()), None);
/// assert_eq!(Request::of(READ, &[4096]), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The number of the device.
    pub device: u16,
    /// Where it begins, in sectors of 512 bytes.
    pub sector: u64,
    /// How long it is.
    pub bytes: u64,
}

impl Request {
    /// The arguments of its hit. A sector after the last that has a number becomes the last one.
    #[inline]
    pub const fn arguments(self) -> [u64; 2] {
        let sector = if self.sector > MAX_SECTOR { MAX_SECTOR } else { self.sector };
        [(self.device as u64) << SECTOR_BITS | sector, self.bytes]
    }

    /// The request with these arguments of a hit of this point. `None` if they are not those of a request.
    pub fn of(point: &str, arguments: &[u64]) -> Option<Self> {
        match *arguments {
            [place, bytes] if point == READ || point == WRITE => {
                Some(Self { device: (place >> SECTOR_BITS) as u16, sector: place & MAX_SECTOR, bytes })
            }
            _ => None,
        }
    }
}
