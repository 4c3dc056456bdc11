//! Functions and variables of QEMU that not every QEMU has. Stage: capture.
//!
//! In: a name. Out: its address. Runs in: QEMU's process, on any thread.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// A function or a variable of QEMU; a variable of the thread is this thread's own.
pub fn symbol(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the name is a C string; null stands for QEMU and its libraries.
    NonNull::new(unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) })
}
