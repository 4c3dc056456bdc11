//! The code of docs/locks.md. In: a raw lock. Out: locks whose waits are counted.

use super::{EVENTS, Port};
use kprof_events::{Events, Profiled, RawLock};

impl Profiled for Port {
    fn events() -> &'static Events<Self> {
        &EVENTS
    }
}

pub type Mutex<T> = lock_api::Mutex<RawLock<spin::Mutex<()>, Port>, T>;
pub type RwLock<T> = lock_api::RwLock<RawLock<spin::RwLock<()>, Port>, T>;

pub type Queue = Vec<u64>;

pub static QUEUE: lock_api::Mutex<RawLock<spin::Mutex<()>, Port, true>, Queue> = lock_api::Mutex::new(Queue::new());
