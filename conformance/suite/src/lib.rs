//! Real peers for the tests of the whole: what casemate meets outside, on loopback, and nothing of casemate itself.
//!
//! Each peer owns one background thread and one port that the kernel chose; dropping it ends both. What the tests
//! start of casemate's own is owned by [`place::Place`], which ends it and can say what was left behind.

pub mod attach;
mod background;
pub mod browser;
pub mod chat_gateway;
pub mod detour;
pub mod fault_proxy;
pub mod git_http;
pub mod llm_stub;
pub mod openab;
pub mod opencode;
pub mod place;
pub mod processes;
pub mod raw_host;
pub mod real_agent;
pub mod recipe;
pub mod skip;
