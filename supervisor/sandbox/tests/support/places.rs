//! A session's places on disk.

use std::fs;
use std::path::Path;

use casemate_protocol::tier::Tier;
use casemate_sandbox::Places;

/// `work`, `home` and `scratch` below a directory, made where they are not there, and `state`, of which nothing may be granted.
pub(crate) fn places(root: &Path, tier: Tier) -> Places {
    let [work, home, scratch, state] = ["work", "home", "scratch", "state"].map(|name| {
        let path = root.join(name);
        fs::create_dir_all(&path).unwrap();
        path
    });
    Places { never: vec![state], ..Places::new(work, home, scratch, tier) }
}
