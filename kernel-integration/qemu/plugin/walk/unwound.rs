//! A walk by unwind tables, for kernels without frame pointers. Stage: capture.
//!
//! In: registers, the kernel's tables. Out: callers, markers, and why the walk ended. Inside of functions the tables
//! say where the return address is and what the caller's RBP was. An entry stub is recognised by its code, and crossed
//! as in a walk by frame pointers: where assembly has tables at all, they seldom know what the processor has pushed.
//! Code without a table is followed to its `ret`, and its caller counts if it calls this code. What remains ends the
//! walk. Runs in: QEMU's process, and in the tool.

use super::calls::calls_to;
use super::entry::entry;
use super::exit::{Exit, Frame, Place};
use super::tables::{LOST, Row, Rule, SAME, Tables};
use super::{End, MAX_CALLERS, Registers, USER, Walk};

/// No frame is larger.
const MAX_FRAME_BYTES: u64 = 256 * 1024;

/// Where Linux saves RBP and RIP, in its registers of what was interrupted (`struct pt_regs`).
const SAVED_RBP: u64 = 4 * 8;
const SAVED_RIP: u64 = 16 * 8;

/// Where the walk is. RBP is not always known.
#[derive(Clone, Copy, Debug)]
struct At {
    code: u64,
    rsp: u64,
    rbp: Option<u64>,
    /// The instruction was sampled or interrupted; otherwise a call precedes it.
    is_exact: bool,
}

impl Walk<'_> {
    /// Walks until the end.
    pub fn by_tables(&mut self, at: Registers, tables: &Tables) -> End {
        let mut at = At { code: at.rip, rsp: at.rsp, rbp: Some(at.rbp), is_exact: true };
        while self.words.len() < MAX_CALLERS {
            // The kernel's entry, before it has changed to its own stack.
            if at.is_exact && !self.half.has_stack(at.rsp) {
                return End::Outermost;
            }
            // A call that never returns may be the last instruction of its function, with other code after it.
            let row = tables.row(if at.is_exact { at.code } else { at.code.wrapping_sub(1) });
            let is_inside = at.is_exact || row.is_none() || !tables.ends_before(at.code);
            let is_told = row.is_some_and(|row| matches!(row.rule, Rule::Saved | Rule::Pushed));
            let crossed =
                if is_inside && !is_told { self.cross_to(at.code, at.rsp, at.rbp, at.is_exact) } else { None };
            let next = match (crossed, row) {
                (_, Some(row)) if is_told => self.by_saved(&at, &row),
                (Some(Ok((to, rbp))), _) => Ok(At { code: to.rip, rsp: to.rsp, rbp, is_exact: true }),
                (Some(Err(end)), _) => Err(end),
                (None, Some(row)) if row.rule != Rule::Sole || self.returns_from(&at, row.offset - 8) => {
                    self.by_row(&at, &row, tables)
                }
                (None, _) => self.by_code(&at, tables),
            };
            match next {
                Ok(next) => at = next,
                Err(end) => return end,
            }
        }
        End::Depth
    }

    /// The caller by the tables.
    fn by_row(&mut self, at: &At, row: &Row, tables: &Tables) -> Result<At, End> {
        let base = match row.rule {
            Rule::Rsp | Rule::Sole => Some(at.rsp),
            Rule::Rbp => at.rbp,
            Rule::Indirect => (self.word)(at.rsp),
            Rule::Uncalled if at.is_exact => return self.by_code(at, tables),
            Rule::Outermost | Rule::Uncalled => return Err(End::Outermost),
            Rule::Nothing | Rule::Unknown | Rule::Saved | Rule::Pushed => None,
        };
        let cfa = base.ok_or(End::Entry)?.wrapping_add_signed(row.offset);
        let rbp = match row.rbp {
            SAME => at.rbp,
            LOST => None,
            // After `pop rbp` the tables may still name the place where it was.
            offset if cfa.wrapping_add_signed(offset) < at.rsp => at.rbp,
            offset => (self.word)(cfa.wrapping_add_signed(offset)),
        };
        // The stack that was changed from may be anywhere.
        let at = if row.rule == Rule::Indirect { &At { rsp: cfa.wrapping_sub(8), ..*at } } else { at };
        self.caller_at(at, cfa, rbp, tables)
    }

    /// What was interrupted, by what an entry has saved.
    fn by_saved(&mut self, at: &At, row: &Row) -> Result<At, End> {
        let saved = at.rsp.wrapping_add_signed(row.offset);
        let (words, rbp) = match row.rule {
            Rule::Saved => (saved.wrapping_add(SAVED_RIP), Some(saved.wrapping_add(SAVED_RBP))),
            _ => (saved, None),
        };
        let ([rip, cs, _, rsp, _], marker) = entry(self.half, words, self.word, self.read_code).ok_or(End::Entry)?;
        self.words.push(marker);
        if cs & 3 == 3 {
            self.words.extend([USER, rip]);
            return Err(End::Outermost);
        }
        self.push(rip);
        // What is below RSP has been restored already.
        let rbp = rbp.filter(|place| *place >= at.rsp).map_or(at.rbp, self.word);
        Ok(At { code: rip, rsp, rbp, is_exact: true })
    }

    /// Whether the code itself says that the return address is at this distance from RSP.
    fn returns_from(&mut self, at: &At, distance: i64) -> bool {
        match self.exits.of(at.code, self.read_code) {
            Exit::Return { to, .. } => to == Place::Rsp(distance),
            Exit::Jump => distance == 0,
            _ => false,
        }
    }

    /// The caller by the code up to `ret`, if it calls this code directly.
    fn by_code(&mut self, at: &At, tables: &Tables) -> Result<At, End> {
        let (to, rbp) = match self.exits.of(at.code, self.read_code) {
            Exit::Return { to, rbp } => (to, rbp),
            // A thunk: it jumps to what was to be called.
            Exit::Jump => (Place::Rsp(0), Frame::Same),
            _ => return Err(End::Entry),
        };
        let place = to.known(at.rsp, at.rbp).ok_or(End::Entry)?;
        let is_called = |caller: &u64| *caller == 0 || calls_to(*caller, at.code, self.read_code);
        (self.word)(place).filter(is_called).ok_or(End::Entry)?;
        let rbp = match rbp {
            Frame::Same => at.rbp,
            Frame::At(place) => place.known(at.rsp, at.rbp).filter(|at_place| *at_place >= at.rsp).and_then(self.word),
            Frame::Is(_) | Frame::Unknown => None,
        };
        self.caller_at(at, place.wrapping_add(8), rbp, tables)
    }

    fn caller_at(&mut self, at: &At, cfa: u64, rbp: Option<u64>, tables: &Tables) -> Result<At, End> {
        match () {
            () if !cfa.is_multiple_of(8) => return Err(End::Alignment),
            () if cfa < at.rsp.wrapping_add(8) => return Err(End::Loop),
            () if cfa - at.rsp > MAX_FRAME_BYTES => return Err(End::Range),
            () => {}
        }
        match (self.word)(cfa.wrapping_sub(8)) {
            None => Err(End::Range),
            Some(0) => Err(End::Outermost),
            Some(caller) if !self.follows_a_call(caller) => {
                // The boot has pushed where to return to, and has not called.
                let is_outermost =
                    tables.row(caller).is_some_and(|row| matches!(row.rule, Rule::Outermost | Rule::Uncalled));
                Err(if is_outermost || self.is_root(at.code, caller) { End::Outermost } else { End::NotText })
            }
            Some(caller) => {
                self.push(caller);
                Ok(At { code: caller, rsp: cfa, rbp, is_exact: false })
            }
        }
    }
}
