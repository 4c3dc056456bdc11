//! The frame record of aarch64, and pointer authentication.
//!
//! ```text
//!   x29 + 8  │ return address │   may be signed
//!   x29      │ caller's x29   │ ◄─ x29, a multiple of 16
//! ```
//!
//! A signed address has a signature in its upper bits: in bits 54 down to the size of virtual addresses, and, unless
//! the hardware ignores the top byte, in bits 63 to 56. Bit 55 is not part of it: it is 1 for kernel addresses (Arm
//! Architecture Reference Manual, D8.10). In: such words. Out: addresses. Pure.

/// How far the record begins below the address in the frame pointer.
pub(crate) const BELOW: u64 = 0;
/// The alignment of records, which is that of the stack pointer.
pub(crate) const ALIGN: u64 = 16;

/// The address in a word that was saved as a return address, without its signature.
#[inline(always)]
pub(crate) fn code_address(word: u64) -> u64 {
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        let address: u64;
        // The processor knows the size of virtual addresses. SAFETY: XPACLRI removes the signature of x30; it is a NOP
        // on processors without pointer authentication.
        unsafe {
            core::arch::asm!(
                "hint #7", inlateout("x30") word => address, options(pure, nomem, nostack, preserves_flags)
            );
        }
        address
    }
    #[cfg(not(all(target_arch = "aarch64", not(miri))))]
    stripped(word, 48)
}

/// The same for virtual addresses of `bits` bits, by arithmetic.
#[cfg(any(test, miri, not(target_arch = "aarch64")))]
const fn stripped(word: u64, bits: u32) -> u64 {
    let upper = u64::MAX << bits;
    if word >> 55 & 1 == 1 { word | upper } else { word & !upper }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::marker::Marker;

    #[test]
    fn a_signature_is_removed_and_an_address_without_one_is_kept() {
        let (kernel, user) = (0xffff_8000_1234_5678, 0x0000_aaaa_1234_5678);
        for address in [kernel, user, 0, u64::MAX, Marker::Syscall.encode(), Marker::Interrupt(7).encode()] {
            assert_eq!(code_address(address), address, "{address:x}");
        }
        // Signatures in the bits 54 to 48 and 63 to 56.
        for signature in [0x7f << 48, 0xff7f << 48, 0x1234 << 48 & !(1 << 55)] {
            assert_eq!(stripped(kernel ^ signature, 48), kernel, "{signature:x}");
            assert_eq!(stripped(user ^ signature, 48), user, "{signature:x}");
        }
        assert_eq!(stripped(0xffff_ff80_4008_0000 ^ 0x7fff << 39 & !(1 << 55), 39), 0xffff_ff80_4008_0000);
    }
}
