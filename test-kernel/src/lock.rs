//! The locks of this kernel: one keeps interrupts off, the other keeps only preemption off.
//!
//! [`IrqLock`] protects data that interrupt handlers use (scheduler, heap, frames). [`Lock`] protects everything else,
//! so that system calls run with interrupts on. Neither is ever taken in an NMI. Both spin with `pause`.

use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use x86_64::instructions::interrupts;

use crate::preempt;

/// A spin lock that keeps interrupts off while it is held.
pub struct IrqLock<T> {
    inner: spin::Mutex<T>,
}

/// Access to the data of an [`IrqLock`]; dropping it restores the interrupt flag.
pub struct IrqGuard<'a, T> {
    inner: ManuallyDrop<spin::MutexGuard<'a, T>>,
    interrupts_were_on: bool,
}

impl<T> IrqLock<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { inner: spin::Mutex::new(value) }
    }

    /// Turns interrupts off and waits for the lock.
    pub fn lock(&self) -> IrqGuard<'_, T> {
        let interrupts_were_on = interrupts::are_enabled();
        interrupts::disable();
        IrqGuard { inner: ManuallyDrop::new(self.inner.lock()), interrupts_were_on }
    }

    /// Takes the lock if it is free. The panic handler uses this, because it must not wait.
    pub fn try_lock(&self) -> Option<IrqGuard<'_, T>> {
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
    pub unsafe fn adopt(&self) -> IrqGuard<'_, T> {
        // SAFETY: the lock is held and its guard was forgotten. Releasing it and taking it again gives a new guard. If
        // another CPU takes the lock in between, this CPU waits for it as usual.
        unsafe { self.inner.force_unlock() };
        IrqGuard { inner: ManuallyDrop::new(self.inner.lock()), interrupts_were_on: false }
    }
}

impl<T> IrqGuard<'_, T> {
    /// Keeps the lock held without a guard, for [`IrqLock::adopt`]. Returns whether interrupts were on before.
    pub fn hand_over(guard: Self) -> bool {
        let were_on = guard.interrupts_were_on;
        core::mem::forget(guard);
        were_on
    }
}

impl<T> Deref for IrqGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for IrqGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T> Drop for IrqGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: `inner` is dropped here and nowhere else, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.inner) };
        if self.interrupts_were_on {
            interrupts::enable();
        }
    }
}

/// A spin lock that keeps preemption off while it is held. It does not change the interrupt flag.
pub struct Lock<T: ?Sized> {
    inner: spin::Mutex<T>,
}

/// Access to the data of a [`Lock`]; dropping it allows preemption again.
pub struct LockGuard<'a, T: ?Sized> {
    inner: ManuallyDrop<spin::MutexGuard<'a, T>>,
}

impl<T> Lock<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { inner: spin::Mutex::new(value) }
    }
}

impl<T: ?Sized> Lock<T> {
    /// Turns preemption off and waits for the lock.
    pub fn lock(&self) -> LockGuard<'_, T> {
        preempt::disable();
        LockGuard { inner: ManuallyDrop::new(self.inner.lock()) }
    }
}

impl<T: ?Sized> Deref for LockGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for LockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized> Drop for LockGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: `inner` is dropped here and nowhere else, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.inner) };
        preempt::enable();
    }
}
