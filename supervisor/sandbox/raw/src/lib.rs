//! System calls that no safe crate wraps: those that a hostile agent tries and software has no business with.
//!
//! Part of the sandbox, where all `unsafe` lives, and a crate of its own so that the attacks need nothing else of it.
//! Everything here is safe to call: [`call`] makes only calls of a closed list, of which it knows which arguments are
//! pointers and which are lengths; [`child`] forks only while there is one thread.

mod calls;
mod child;
mod descriptors;
#[cfg(target_arch = "x86_64")]
mod tables;

pub use calls::{Arg, Call, Page, call};
pub use child::{Ended, child, clone_child, clone3_child};
pub use descriptors::{connect_by_write, signal_owner};
#[cfg(target_arch = "x86_64")]
pub use tables::{i386_getpid, x32_getpid};
