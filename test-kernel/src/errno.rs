//! Error numbers of system calls, which are those of Linux.

/// The result of an operation of a system call.
pub type Result<T> = core::result::Result<T, Errno>;

macro_rules! errno {
    ($($name:ident = $number:literal,)*) => {
        /// An error number (Linux `asm-generic/errno.h`).
        #[allow(missing_docs, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Errno { $($name = $number,)* }

        impl Errno {
            /// The error with this number; EIO if this kernel does not know the number.
            pub fn from_number(number: u32) -> Self {
                match number { $($number => Self::$name,)* _ => Self::EIO }
            }
        }
    };
}

errno! {
    EPERM = 1, ENOENT = 2, ESRCH = 3, EINTR = 4, EIO = 5, E2BIG = 7, ENOEXEC = 8, EBADF = 9, ECHILD = 10, EAGAIN = 11,
    ENOMEM = 12, EACCES = 13, EFAULT = 14, EBUSY = 16, EEXIST = 17, EXDEV = 18, ENODEV = 19, ENOTDIR = 20, EISDIR = 21,
    EINVAL = 22, ENFILE = 23, EMFILE = 24, ENOTTY = 25, EFBIG = 27, ENOSPC = 28, ESPIPE = 29, EROFS = 30, EMLINK = 31,
    EPIPE = 32, ERANGE = 34, ENAMETOOLONG = 36, ENOSYS = 38, ENOTEMPTY = 39, ELOOP = 40, EPROTO = 71, EOPNOTSUPP = 95,
    EDQUOT = 122,
}
