//! The walls: Landlock and seccomp, namespaces, the spawner that puts an agent behind them, and the one owner of
//! every wait.
//!
//! The only crate with `unsafe`. It decides nothing: what to allow comes from a policy, what to start from the caller.

pub mod beneath;
mod forked;
pub mod kernel;
pub mod listener;
pub mod lock;
pub mod memory;
pub mod namespaces;
pub mod porter;
pub mod reap;
pub mod shield;
mod single;
pub mod spawner;
pub mod standard;
pub mod terminal;
pub mod users;
pub mod wall;

pub use listener::{Attempt, Listener, Recorder, RefusedCall, programs};
pub use reap::{Exit, reap};
pub use spawner::{Command, ProbeAnswer, SessionSpawner, SpawnError, Spawner, Step, Usage};
pub use wall::{
    Layers, Logging, Places, Program, Reach, Reached, Rlimit, Wall, WallError, check_calls,
    check_egress, check_paths, environment, landlock_abi, mounted_secrets, shows_no_secret,
    shows_nothing_of, syscall_number,
};
