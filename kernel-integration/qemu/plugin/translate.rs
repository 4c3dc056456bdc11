//! Puts counters into a block that QEMU translates. Stage: capture.
//!
//! In: the instructions of the block. Out: code in it that adds to counters. A block is cut into runs: only the last
//! instruction of a run may fail to complete, so all instructions of a run begin equally often, and one counter is
//! enough for them. The same code has the same counters whenever it is translated.

use super::describe::{Described, describe};
use super::functions::Functions;
use super::qemu::{self, Counter};
use std::collections::HashMap;

/// Instructions in a row that begin equally often.
pub struct Run {
    /// The number of the first one in its block.
    pub first: u32,
    pub length: u32,
    /// How often they were executed.
    pub count: Counter,
}

/// A block with its counters.
pub struct Translated {
    pub of: Described,
    pub runs: Box<[Run]>,
}

impl Translated {
    fn new(of: Described) -> Self {
        let end = of.block.lengths.len() as u32;
        let ends = of.runs.iter().copied().skip(1).chain([end]);
        let run = |(first, end): (&u32, u32)| Run { first: *first, length: end - first, count: Counter::new() };
        Self { runs: of.runs.iter().zip(ends).map(run).collect(), of }
    }
}

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
        (is_x86, is_user): (bool, bool),
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
        let known = *known.or_insert_with(|| {
            Box::leak(Box::new(Translated::new(describe(&instructions, is_x86, is_user, functions))))
        });
        // SAFETY: the block and its instructions are being translated; the counters live as long as the process.
        unsafe {
            for run in &known.runs {
                qemu::count(&handles[run.first as usize..][..run.length as usize], &run.count);
            }
        }
        Some(known)
    }
}
