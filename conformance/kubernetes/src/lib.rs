//! A real Kubernetes for tests: the cluster of `conformance/cluster`, or a user's own.
//!
//! [`Cluster`] is found by the environment, [`Namespace`] is one test's room in it, and [`pod`] has the shapes of Pods
//! that tests vary. Everything is asked of the cluster by kubectl, so that what a test does can be done by hand.

pub mod api_proxy;
mod cluster;
mod helm;
mod namespace;
pub mod pod;

pub use casemate_suite::processes::until;
pub use cluster::{Cluster, Said};
pub use helm::Helm;
pub use namespace::Namespace;
