//! The words of casemate as types.
//!
//! Everything that two programs of casemate must agree on lives here: names ([`ids`], [`key`]), proofs ([`token`], [`proof`]),
//! the worker's start and status ([`worker`], [`usage`]), what binds one that waits ([`slot`]), the allocator's HTTP API ([`api`]), policies ([`policy`]), a command in a
//! session ([`exec`]), who gets which TCP ports ([`ports`]), where one machine has it all ([`home`]), errors in one line ([`words`]), the numbers other programs see ([`codes`]), what ACP itself asks of a relay ([`acp`]), and how
//! its lines survive a broken connection ([`relay`]).
//!
//! Absent on purpose: tokio, sockets, files, clocks. A function here maps values to values.

pub mod acp;
pub mod api;
pub mod audit;
pub mod codes;
pub mod end;
pub mod exec;
pub mod home;
pub mod ids;
pub mod kernel;
pub mod key;
pub mod matrix;
pub mod origin;
pub mod policy;
pub mod ports;
pub mod proof;
pub mod relay;
pub mod sharing;
pub mod slot;
pub mod tier;
pub mod tls;
pub mod token;
pub mod usage;
pub mod words;
pub mod worker;
