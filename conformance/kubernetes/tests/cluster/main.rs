//! That the cluster which other tests stand on is a real one: what it admits and refuses, its storage, its network, its
//! nodes, and that nothing of it stays behind.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

mod admission;
mod exec;
mod lifecycle;
mod network;
mod nodes;
mod opencode;
mod slot;
mod storage;
mod web;
