//! A change of choices, state, mode or claim. Changes are made one at a time, and each completely or not at all.
//!
//! In: the wanted values. Out: they are in force, or an error says why not. Runs in: ordinary code. Every wait has a
//! bound: [`CHANGE_WAIT_US`] for another change, [`SETTLE_WAIT_US`] for pending ticks, [`OWNER_WAIT_US`] for a stream
//! that another owner works on. Interrupts are neither disabled nor enabled.
//!
//! In drop mode the reader moves a ring's tail, in overwrite mode the producer. So during a change of mode no handler
//! may run, and no other owner may have a stream: a change of mode pauses the ticks, waits until all have been taken,
//! owns every stream, and then switches.

use crate::control::layers::Layers;
use crate::errors::StateError;
use crate::format::settings::Choices;
use crate::live::State;
use crate::patience::Patience;
use crate::shared::Shared;
use crate::stream::OWNER_WAIT_US;
use crate::stream::meta::ClaimId;
use crate::stream::owner::{Activity, Owner};
use core::sync::atomic::{Ordering, fence};

/// How long to wait for pending ticks, in microseconds.
pub(crate) const SETTLE_WAIT_US: u64 = 1_000_000;
/// How long to wait for another change, in microseconds: as long as one may take.
pub(crate) const CHANGE_WAIT_US: u64 = SETTLE_WAIT_US + 2 * OWNER_WAIT_US;

/// The right to change choices, state, mode and claim.
pub(crate) struct ChangeLock<'a>(&'a Shared, #[allow(dead_code, reason = "held")] spin::MutexGuard<'a, ()>);

/// Proof that the caller owns all streams. Dropping it leaves them.
pub(crate) struct AllStreams<'a>(&'a Shared);

impl Drop for AllStreams<'_> {
    #[inline(never)]
    fn drop(&mut self) {
        self.0.wants_all.store(false, Ordering::Relaxed);
        // There is one transition at a time, so every stream taken for a transition belongs to this one.
        let owners = self.0.streams().map(|(_, stream)| &stream.reader.owner);
        owners.filter(|owner| owner.is_taken_for(Activity::Transition)).for_each(Owner::leave);
    }
}

/// A change that was prepared: ticks are paused and streams are owned, as far as the change needs it.
pub(crate) struct Transition<'a> {
    lock: &'a ChangeLock<'a>,
    layers: Layers,
    /// The choices and the state that will be in force.
    pub(crate) wanted: Choices,
    pub(crate) target: State,
    /// The state that the change found.
    pub(crate) before: State,
    is_paused: bool,
    all: Option<AllStreams<'a>>,
}

impl Drop for Transition<'_> {
    fn drop(&mut self) {
        // The change was given up: restores the state before it.
        if self.is_paused {
            self.lock.0.live.set_state(State::Running);
        }
    }
}

impl Shared {
    /// Takes the right to make changes, after waiting for other changes to end. There is none before `init`, which sets
    /// the state and all settings.
    pub(crate) fn change_lock(&self) -> Result<ChangeLock<'_>, StateError> {
        self.change_lock_within(CHANGE_WAIT_US)
    }

    /// The same, after waiting for at most this many microseconds.
    pub(crate) fn change_lock_within(&self, us: u64) -> Result<ChangeLock<'_>, StateError> {
        if self.slots().is_empty() {
            return Err(StateError::NotReady);
        }
        let lock = Patience::us(us, self.tsc_hz()).lock(&self.changes);
        lock.map(|lock| ChangeLock(self, lock)).ok_or(StateError::Busy)
    }

    /// Waits until no tick is pending and no handler runs.
    #[inline(never)]
    pub(crate) fn settle(&self) -> Result<(), StateError> {
        fence(Ordering::SeqCst);
        let mut patience = Patience::us(SETTLE_WAIT_US, self.tsc_hz());
        loop {
            let sending = self.sending.load(Ordering::SeqCst);
            let late = self.slots().iter().enumerate().find(|(_, slot)| slot.is_busy());
            let error = match late {
                None if !sending => return Ok(()),
                None => StateError::Sampler,
                Some((cpu, slot)) => StateError::Pending { cpu, ticks: slot.pending() },
            };
            if !patience.go_on() {
                return Err(error);
            }
        }
    }
}

impl<'a> ChangeLock<'a> {
    /// Takes every stream.
    #[inline(never)]
    fn all_streams(&self) -> Result<AllStreams<'a>, StateError> {
        let shared = self.0;
        let mut patience = Patience::us(OWNER_WAIT_US, shared.tsc_hz());
        shared.wants_all.store(true, Ordering::Relaxed);
        let all = AllStreams(shared);
        for (name, stream) in shared.streams() {
            if !stream.reader.owner.take_within(Activity::Transition, &mut patience) {
                return Err(StateError::StreamBusy(name));
            }
        }
        Ok(all)
    }

    /// Undoes the changes of a lease whose holder has closed its control file. Does nothing if no such file was ever
    /// opened.
    pub(crate) fn undo_expired_lease(&self) -> Result<(), StateError> {
        self.0.undo_lease.get().map_or(Ok(()), |undo| undo(self.0, self))
    }

    /// Prepares a change to these settings. If this fails, nothing has changed. `all`: every stream must be owned, as
    /// for a change of the claim.
    pub(crate) fn prepare(&'a self, layers: Layers, all: bool) -> Result<Transition<'a>, StateError> {
        let (shared, (wanted, target)) = (self.0, layers.in_force());
        let before = shared.state();
        let new_mode = shared.live.choices().mode != wanted.mode;
        let begins_recording = wanted.overwrites() && target == State::Running && before != State::Running;
        let mut transition = Transition { lock: self, layers, wanted, target, before, is_paused: false, all: None };
        if new_mode {
            if before == State::Running {
                transition.is_paused = true;
                shared.live.set_state(State::Paused);
            }
            shared.settle()?;
        }
        if new_mode || begins_recording || all {
            transition.all = Some(self.all_streams()?);
        }
        Ok(transition)
    }
}

impl<'a> Transition<'a> {
    /// Whether every stream is owned.
    pub(crate) fn owns_all(&self) -> bool {
        self.all.is_some()
    }

    /// Sets the claim of every stream; they are all owned.
    pub(crate) fn set_claim(&self, claim: ClaimId, process: u64) {
        let shared = self.lock.0;
        shared.claim_process.store(process, Ordering::Relaxed);
        shared.meta.claim.store(claim, Ordering::Release);
        shared.streams().for_each(|(_, stream)| stream.taken(false, false).rewind());
    }

    /// Puts the change in force. `asked`: the caller asked for this state, even if it is the same as before.
    ///
    /// # Errors
    /// Sampling should end, but some ticks stay pending. No more ticks are sent, and the rest of the change is in
    /// force.
    pub(crate) fn commit(mut self, asked: bool) -> Result<(), StateError> {
        let (shared, wanted, target) = (self.lock.0, self.wanted, self.target);
        shared.set_layers(self.layers);
        if self.before == State::Stopped && target == State::Running {
            shared.extension().begins();
        }
        let new_mode = shared.live.choices().mode != wanted.mode;
        let recorder = wanted.overwrites() && target == State::Running;
        shared.live.store(&wanted);
        // If the mode changes or a recorder starts, no producer is running here and every stream is owned.
        if new_mode || recorder {
            shared.recorder.store(recorder, Ordering::Release);
        }
        self.is_paused = false;
        shared.live.set_state(target);
        if target == State::Running || new_mode || !(asked || self.before != target) {
            return Ok(());
        }
        self.all = None;
        shared.settle()?;
        if shared.recorder() {
            // No producer is running: from here on the streams' owners move the tails.
            self.all = Some(self.lock.all_streams()?);
            shared.recorder.store(false, Ordering::Release);
        }
        Ok(())
    }
}
