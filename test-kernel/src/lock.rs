//! The locks of this kernel: one keeps interrupts off, the other keeps only preemption off.
//!
//! [`IrqLock`] protects data that interrupt handlers use (scheduler, heap, frames). [`Lock`] protects everything else,
//! so that system calls run with interrupts on. Neither is ever taken in an NMI. Both spin with `pause`. Both are
//! around a raw lock: by default a spin lock, elsewhere one that the profiler watches (`profiling::RawKernelLock`).

use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use lock_api::RawMutex;
use x86_64::instructions::interrupts;

use crate::preempt;

/// A spin lock that keeps interrupts off while it is held.
pub struct IrqLock<T, R = spin::Mutex<()>> {
    inner: lock_api::Mutex<R, T>,
}

/// Access to the data of an [`IrqLock`]; dropping it restores the interrupt flag.
pub struct IrqGuard<'a, T, R: RawMutex = spin::Mutex<()>> {
    inner: ManuallyDrop<lock_api::MutexGuard<'a, R, T>>,
    interrupts_were_on: bool,
}

impl<T, R: RawMutex> IrqLock<T, R> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { inner: lock_api::Mutex::new(value) }
    }

    /// Turns interrupts off and waits for the lock.
    pub fn lock(&self) -> IrqGuard<'_, T, R> {
        let interrupts_were_on = interrupts::are_enabled();
        interrupts::disable();
        IrqGuard { inner: ManuallyDrop::new(self.inner.lock()), interrupts_were_on }
    }

    /// Takes the lock if it is free. The panic handler uses this, because it must not wait.
    pub fn try_lock(&self) -> Option<IrqGuard<'_, T, R>> {
        let interrupts_were_on = interrupts::are_enabled();
        interrupts::disable();
        match self.inner.try_lock() {
            Some(guard) => Some(IrqGuard { inner: ManuallyDrop::new(guard), interrupts_were_on }),
            None => {
                if interrupts_were_on {
                    interrupts::enable();
                }
                None
            }
        }
    }

    /// Releases the lock even if other code holds it. Only the panic handler uses this.
    ///
    /// # Safety
    /// The code that holds the lock must not continue.
    pub unsafe fn force_unlock(&self) {
        // SAFETY: passed on to the caller.
        unsafe { self.inner.force_unlock() }
    }

    /// Takes over a lock that was handed over by [`IrqGuard::hand_over`]. Interrupts stay off when the guard is
    /// dropped.
    ///
    /// # Safety
    /// The lock must be held by the code that handed it over.
    pub unsafe fn adopt(&self) -> IrqGuard<'_, T, R> {
        // SAFETY: the lock is held and its guard was forgotten. Releasing it and taking it again gives a new guard. If
        // another CPU takes the lock in between, this CPU waits for it as usual.
        unsafe { self.inner.force_unlock() };
        IrqGuard { inner: ManuallyDrop::new(self.inner.lock()), interrupts_were_on: false }
    }
}

impl<T, R: RawMutex> IrqGuard<'_, T, R> {
    /// Keeps the lock held without a guard, for [`IrqLock::adopt`]. Returns whether interrupts were on before.
    pub fn hand_over(guard: Self) -> bool {
        let were_on = guard.interrupts_were_on;
        core::mem::forget(guard);
        were_on
    }
}

impl<T, R: RawMutex> Deref for IrqGuard<'_, T, R> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T, R: RawMutex> DerefMut for IrqGuard<'_, T, R> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T, R: RawMutex> Drop for IrqGuard<'_, T, R> {
    fn drop(&mut self) {
        // SAFETY: `inner` is dropped here and nowhere else, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.inner) };
        if self.interrupts_were_on {
            interrupts::enable();
        }
    }
}

/// A spin lock that keeps preemption off while it is held. It does not change the interrupt flag.
pub struct Lock<T: ?Sized, R = spin::Mutex<()>> {
    inner: lock_api::Mutex<R, T>,
}

/// Access to the data of a [`Lock`]; dropping it allows preemption again.
pub struct LockGuard<'a, T: ?Sized, R: RawMutex = spin::Mutex<()>> {
    inner: ManuallyDrop<lock_api::MutexGuard<'a, R, T>>,
}

impl<T, R: RawMutex> Lock<T, R> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { inner: lock_api::Mutex::new(value) }
    }
}

impl<T: ?Sized, R: RawMutex> Lock<T, R> {
    /// Turns preemption off and waits for the lock.
    pub fn lock(&self) -> LockGuard<'_, T, R> {
        preempt::disable();
        LockGuard { inner: ManuallyDrop::new(self.inner.lock()) }
    }
}

impl<T: ?Sized, R: RawMutex> Deref for LockGuard<'_, T, R> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized, R: RawMutex> DerefMut for LockGuard<'_, T, R> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized, R: RawMutex> Drop for LockGuard<'_, T, R> {
    fn drop(&mut self) {
        // SAFETY: `inner` is dropped here and nowhere else, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.inner) };
        preempt::enable();
    }
}
