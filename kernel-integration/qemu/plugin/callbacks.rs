//! The functions that QEMU calls, whose form differs between versions of the plugin interface. Stage: capture.
//!
//! In: functions of the plugin. Out: calls of them by QEMU. Runs in: QEMU's process.

use super::interface::{Block, Id};
use std::ffi::{c_uint, c_void};
use std::sync::OnceLock;

/// What is called when. Functions of vCPUs have the vCPU's number.
pub struct Callbacks {
    /// When a vCPU was made, waits, and executes code again; `None` if nobody wants to know.
    pub vcpus: Option<[fn(usize); 3]>,
    /// When a block is translated, on the thread of the vCPU that is about to run it.
    pub translate: fn(*mut Block),
    /// When QEMU ends.
    pub exit: fn(),
}

static CALLBACKS: OnceLock<Callbacks> = OnceLock::new();

/// What QEMU gives first: its number of the plugin; from version 7 of the interface on the plugin's data, last.
#[cfg(not(interface = "7"))]
mod form {
    use super::*;

    pub type OnVcpu = extern "C" fn(Id, c_uint);
    pub type OnTranslation = extern "C" fn(Id, *mut Block);
    pub type OnExit = extern "C" fn(Id, *mut c_void);

    unsafe extern "C" {
        fn qemu_plugin_register_vcpu_init_cb(id: Id, call: OnVcpu);
        fn qemu_plugin_register_vcpu_idle_cb(id: Id, call: OnVcpu);
        fn qemu_plugin_register_vcpu_resume_cb(id: Id, call: OnVcpu);
        fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, call: OnTranslation);
        fn qemu_plugin_register_atexit_cb(id: Id, call: OnExit, data: *mut c_void);
    }

    extern "C" fn init(_: Id, cpu: c_uint) {
        on_vcpu(0, cpu);
    }

    extern "C" fn idle(_: Id, cpu: c_uint) {
        on_vcpu(1, cpu);
    }

    extern "C" fn resume(_: Id, cpu: c_uint) {
        on_vcpu(2, cpu);
    }

    extern "C" fn translate(_: Id, block: *mut Block) {
        on_translation(block);
    }

    extern "C" fn exit(_: Id, _: *mut c_void) {
        on_exit();
    }

    pub fn register(id: Id, has_vcpus: bool) {
        // SAFETY: the functions have the types that the interface asks for, and live as long as the process.
        unsafe {
            if has_vcpus {
                qemu_plugin_register_vcpu_init_cb(id, init);
                qemu_plugin_register_vcpu_idle_cb(id, idle);
                qemu_plugin_register_vcpu_resume_cb(id, resume);
            }
            qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
            qemu_plugin_register_atexit_cb(id, exit, std::ptr::null_mut());
        }
    }
}

#[cfg(interface = "7")]
mod form {
    use super::*;

    pub type OnVcpu = extern "C" fn(c_uint, *mut c_void);
    pub type OnTranslation = extern "C" fn(*mut Block, *mut c_void);
    pub type OnExit = extern "C" fn(*mut c_void);

    unsafe extern "C" {
        fn qemu_plugin_register_vcpu_init_cb(id: Id, call: OnVcpu, data: *mut c_void);
        fn qemu_plugin_register_vcpu_idle_cb(id: Id, call: OnVcpu, data: *mut c_void);
        fn qemu_plugin_register_vcpu_resume_cb(id: Id, call: OnVcpu, data: *mut c_void);
        fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, call: OnTranslation, data: *mut c_void);
        fn qemu_plugin_register_atexit_cb(id: Id, call: OnExit, data: *mut c_void);
    }

    extern "C" fn init(cpu: c_uint, _: *mut c_void) {
        on_vcpu(0, cpu);
    }

    extern "C" fn idle(cpu: c_uint, _: *mut c_void) {
        on_vcpu(1, cpu);
    }

    extern "C" fn resume(cpu: c_uint, _: *mut c_void) {
        on_vcpu(2, cpu);
    }

    extern "C" fn translate(block: *mut Block, _: *mut c_void) {
        on_translation(block);
    }

    extern "C" fn exit(_: *mut c_void) {
        on_exit();
    }

    pub fn register(id: Id, has_vcpus: bool) {
        let data = std::ptr::null_mut();
        // SAFETY: the functions have the types that the interface asks for, and live as long as the process.
        unsafe {
            if has_vcpus {
                qemu_plugin_register_vcpu_init_cb(id, init, data);
                qemu_plugin_register_vcpu_idle_cb(id, idle, data);
                qemu_plugin_register_vcpu_resume_cb(id, resume, data);
            }
            qemu_plugin_register_vcpu_tb_trans_cb(id, translate, data);
            qemu_plugin_register_atexit_cb(id, exit, data);
        }
    }
}

fn on_vcpu(event: usize, cpu: c_uint) {
    if let Some(call) = CALLBACKS.get().and_then(|calls| calls.vcpus?.get(event).copied()) {
        call(cpu as usize);
    }
}

fn on_translation(block: *mut Block) {
    if let Some(calls) = CALLBACKS.get() {
        (calls.translate)(block);
    }
}

fn on_exit() {
    if let Some(calls) = CALLBACKS.get() {
        (calls.exit)();
    }
}

impl Callbacks {
    /// QEMU calls them from now on.
    pub fn register(self, id: Id) {
        let has_vcpus = self.vcpus.is_some();
        if CALLBACKS.set(self).is_ok() {
            form::register(id, has_vcpus);
        }
    }
}
