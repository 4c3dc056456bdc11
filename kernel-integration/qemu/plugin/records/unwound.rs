//! The caller by the kernel's unwind tables, on aarch64 and riscv64. Stage: capture.
//!
//! In: tables, and a place in a function. Out: where the function returns to, with the caller's registers. Tables say
//! nothing exact of the instructions around a function's begin and end, so the sampled one is followed to its return
//! first, and only callers are looked up first. Runs in: QEMU's process, on the vCPU's thread.

use super::super::walk::End;
use super::super::walk::tables::{LOST, Row, Rule, SAME, Tables};
use super::{Caller, MAX_FRAME_BYTES, Walk};

/// What the tables say of a place: `None` if nothing, or no more than a line of assembly would.
pub fn row(tables: Option<&Tables>, pc: u64, is_sampled: bool) -> Option<Row> {
    // A call that never returns may be the last instruction of its function.
    let at = if is_sampled { pc } else { pc.wrapping_sub(1) };
    tables?.row(at).filter(|row| row.rule != Rule::Sole)
}

impl Walk<'_> {
    /// The caller, or why the stack ends here; `None` if this walk does not know the row's rules.
    pub(super) fn by_row(&self, row: &Row, here: &Caller, link: Option<u64>) -> Option<Result<Caller, End>> {
        let base = match row.rule {
            Rule::Rsp => here.sp?,
            Rule::Rbp => here.fp,
            Rule::Outermost => return Some(Err(End::Outermost)),
            _ => return None,
        };
        let cfa = base.wrapping_add_signed(row.offset);
        if here.sp.is_some_and(|sp| cfa.wrapping_sub(sp) >= MAX_FRAME_BYTES) {
            return Some(Err(End::Range));
        }
        let value = |place, register: Option<u64>| match place {
            SAME => register,
            LOST => None,
            place => (self.word)(cfa.wrapping_add_signed(place)),
        };
        let (pc, fp) = (value(row.link, link)?, value(row.rbp, Some(here.fp))?);
        Some(match self.return_address(pc) {
            Some(pc) => Ok(Caller { pc, sp: Some(cfa), fp }),
            None if pc == 0 => Err(End::Outermost),
            None => Err(End::NotText),
        })
    }
}
