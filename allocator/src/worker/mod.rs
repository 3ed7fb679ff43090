//! Workers as processes: start one, know it again, speak with it, prove it gone. No decisions here.

pub(crate) mod client;
pub(crate) mod fence;
pub(crate) mod launch;
pub(crate) mod lock;
pub(crate) mod process;
