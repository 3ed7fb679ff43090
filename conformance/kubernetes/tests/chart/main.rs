//! The chart: what it says without a cluster, and its life in one.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed, which is what it is for")]

mod life;
mod rendered;

const DIGEST: &str =
    "image.digest=sha256:0000000000000000000000000000000000000000000000000000000000000000";
