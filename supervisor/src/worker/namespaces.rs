//! What of the machine a worker in tier `namespace` sees. Pure: configuration in, binds out.

use std::path::Path;

use casemate_protocol::worker::WorkerConfig;
use casemate_sandbox::namespaces::{Access, Bind, Plan};

use crate::layout::{Layout, PASSING, SYSTEM};

/// The uid that every agent has inside, whoever runs the worker.
const INSIDE_UID: u32 = 1000;

/// The plan of a worker.
#[must_use]
pub(super) fn plan(config: &WorkerConfig, layout: &Layout) -> Plan {
    let bind = |source: &Path, target: &Path, access, required| Bind {
        source: source.to_owned(),
        target: target.to_owned(),
        access,
        required,
    };
    let mut binds: Vec<Bind> = SYSTEM
        .iter()
        .map(Path::new)
        .map(|path| bind(path, path, Access::ReadOnly, false))
        .collect();
    let (outside, inside) = (&layout.outside, &layout.inside);
    for (source, target) in [
        (&outside.work, &inside.work),
        (&outside.home, &inside.home),
        (&outside.scratch, &inside.scratch),
        (&outside.state, &inside.state),
    ] {
        binds.push(bind(source, target, Access::ReadWrite, true));
    }
    for (source, target) in [&layout.source, &layout.template, &layout.skills].into_iter().flatten()
    {
        binds.push(bind(source, target, Access::ReadOnly, true));
    }
    // What lies below a system directory is there already.
    let system = |path: &Path| SYSTEM.iter().any(|directory| path.starts_with(directory));
    let own = layout.programs.iter().filter(|(outside, _)| !system(outside));
    binds.extend(own.map(|(outside, inside)| bind(outside, inside, Access::ReadOnly, true)));
    Plan {
        host_uid: config.host_uid,
        inside_uid: INSIDE_UID,
        binds,
        hostname: None,
        withdrawn: Some(PASSING.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::config;
    use casemate_protocol::tier::Tier;
    use casemate_protocol::worker::Repository;

    #[test]
    fn only_the_four_trees_of_the_session_can_be_written_and_no_other_slot_is_there() {
        let mut config = config(Path::new("/v/slots/w"));
        config.tier = Tier::Namespace;
        config.repository = Some(Repository::Local("/r/.git".into()));
        config.home_template = Some("/h".into());
        config.skills = Some("/skills-of-all".into());
        config.programs = vec!["/home/me/agent".into(), "/usr/local/lib/agent".into()];
        let layout = Layout::of(&config);
        let plan = plan(&config, &layout);
        let writable: Vec<&Path> = plan
            .binds
            .iter()
            .filter(|bind| bind.access == Access::ReadWrite)
            .map(|bind| bind.target.as_path())
            .collect();
        assert_eq!(writable, ["/work", "/home/agent", "/tmp", "/casemate/state"].map(Path::new));
        let shown = |path: &str| plan.binds.iter().any(|bind| bind.source == Path::new(path));
        assert!(shown("/home/me/agent") && shown("/skills-of-all"));
        let below = |bind: &&Bind| bind.target.starts_with(plan.withdrawn.as_deref().unwrap());
        let withdrawn: Vec<&Path> =
            plan.binds.iter().filter(below).map(|bind| bind.source.as_path()).collect();
        assert_eq!(
            withdrawn,
            [Path::new("/v/slots/w/state"), Path::new("/r/.git"), Path::new("/h")]
        );
        assert!(!shown("/usr/local/lib/agent") && !shown("/v/slots/w") && !shown("/v/slots"));
    }
}
