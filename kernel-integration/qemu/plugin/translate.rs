//! Puts counters into a block that QEMU translates. Stage: capture.
//!
//! In: the instructions of the block. Out: inline code in it that adds to counters. A block is cut into runs: only the
//! last instruction of a run may fail to complete, so all instructions of a run begin equally often, and one counter
//! is enough for them. Beside that, each instruction adds 1 to one counter for all: it does not depend on where runs
//! end. The same code has the same counters whenever it is translated. Inline code is not atomic: QEMU must run all
//! vCPUs in one thread.

use super::describe::{Translated, describe};
use super::functions::Functions;
use super::qemu;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::AtomicU64;

/// Instructions that have begun.
pub static EXECUTED: AtomicU64 = AtomicU64::new(0);

/// All blocks, by address, privilege and code.
#[derive(Default)]
pub struct Blocks(HashMap<(u64, bool, Vec<u8>), &'static Translated>);

impl Blocks {
    pub fn all(&self) -> impl Iterator<Item = &'static Translated> {
        self.0.values().copied()
    }

    /// The block, with counters put into it; `None` if it has no instruction.
    ///
    /// # Safety
    /// QEMU has given the block to be translated.
    pub unsafe fn translate(
        &mut self,
        block: *mut qemu::Block,
        is_user: bool,
        functions: &Functions,
    ) -> Option<&'static Translated> {
        // SAFETY: the caller's block has this many instructions.
        let handles: Vec<_> = unsafe {
            (0..qemu::qemu_plugin_tb_n_insns(block)).map(|at| qemu::qemu_plugin_tb_get_insn(block, at)).collect()
        };
        // SAFETY: they are instructions of a block that is being translated.
        let instructions: Vec<_> = handles.iter().map(|handle| unsafe { qemu::instruction(*handle) }).collect();
        let start = instructions.first()?.0;
        // The same bytes are other instructions in another mode, so their lengths are part of the key.
        let code = instructions.iter().flat_map(|(_, bytes)| [&[bytes.len() as u8], &bytes[..]].concat()).collect();
        let known = self.0.entry((start, is_user, code));
        let known = *known.or_insert_with(|| Box::leak(Box::new(describe(&instructions, is_user, functions))));
        // SAFETY: the block and its instructions are being translated; the counters live as long as the process.
        unsafe {
            for (first, counter) in &known.runs {
                let handle = handles[*first as usize];
                qemu::qemu_plugin_register_vcpu_insn_exec_inline(handle, qemu::ADD, address(counter), 1);
            }
            for handle in handles {
                qemu::qemu_plugin_register_vcpu_insn_exec_inline(handle, qemu::ADD, address(&EXECUTED), 1);
            }
        }
        Some(known)
    }
}

fn address(counter: &'static AtomicU64) -> *mut c_void {
    counter.as_ptr().cast()
}
