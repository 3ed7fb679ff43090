//! What a wall refuses to be, seen from the parent.

use std::path::Path;

use casemate_protocol::policy::{DEVELOPER, Policy};
use casemate_protocol::tier::Tier;
use casemate_protocol::worker::PortRange;

use super::*;

/// A session's places below a directory; made on disk.
pub(crate) fn places(root: &Path) -> Places {
    for name in ["work", "home", "scratch", "state"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    Places {
        work: root.join("work"),
        home: root.join("home"),
        scratch: root.join("scratch"),
        skills: None,
        programs: Vec::new(),
        read: Vec::new(),
        never: vec![root.join("state")],
        ports: PortRange { first: 20_000, count: 4 },
        connect: Vec::new(),
        tier: Tier::Domain,
    }
}

#[test]
fn the_default_policy_builds() {
    let directory = tempfile::tempdir().unwrap();
    let policy = Policy::parse(DEVELOPER).unwrap();
    let wall = Wall::build(&policy, &places(directory.path())).unwrap();
    eprintln!("{:#?}", wall.summary());
}
