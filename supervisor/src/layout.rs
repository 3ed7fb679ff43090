//! Where everything is: on the volume, and as the session sees it.
//!
//! Pure. In tier `namespace` the two differ; in tier `domain` they are the same paths. In a Pod they are the same as well: the kubelet has
//! mounted each where it is to be seen.

use std::path::{Path, PathBuf};

use casemate_protocol::ids::PlaceId;
use casemate_protocol::ports::PortRange;
use casemate_protocol::slot::paths;
use casemate_protocol::tier::Tier;
use casemate_protocol::worker::{Repository, WorkerConfig};
use casemate_sandbox::Places;

/// The paths of one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Which tier this is the layout of.
    pub tier: Tier,
    /// On the volume.
    pub outside: Tree,
    /// As the supervisor and the agent see it once namespaces have been entered; the state, until the agent starts.
    pub inside: Tree,
    /// The local repository's Git directory, (outside, inside until the agent starts).
    pub source: Option<(PathBuf, PathBuf)>,
    /// The HOME template, (outside, inside until the agent starts).
    pub template: Option<(PathBuf, PathBuf)>,
    /// The skills, (outside, inside).
    pub skills: Option<(PathBuf, PathBuf)>,
    /// The agent's installation, (outside, inside): at its own paths, but for what lies where the session's own trees
    /// are shown.
    pub programs: Vec<(PathBuf, PathBuf)>,
}

/// The four trees of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// The worktree.
    pub work: PathBuf,
    /// The agent's HOME.
    pub home: PathBuf,
    /// The agent's TMPDIR.
    pub scratch: PathBuf,
    /// The supervisor's own; no agent is ever granted it.
    pub state: PathBuf,
}

/// System directories, read-only inside.
pub const SYSTEM: [&str; 9] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt"];

/// Places that are the session's own in tier `namespace`: what the machine has there is not to be seen.
const OWN: [&str; 6] = ["/work", "/home/agent", "/tmp", "/skills", "/programs", PASSING];

/// Where the state, the source and the template are in tier `namespace`, until the agent starts.
pub const PASSING: &str = "/casemate";

fn moved_program(index: usize, path: &Path) -> PathBuf {
    let place = Path::new("/programs").join(index.to_string());
    place.join(path.file_name().unwrap_or_default())
}

// === impl Layout ===

impl Layout {
    /// The layout of a configuration.
    #[must_use]
    pub fn of(config: &WorkerConfig) -> Self {
        Self::at(config, config.session.as_str(), config.volume.join("state"))
    }

    /// The layout of a session that shares its slot: its trees are at a place of its own, which its id does not tell, and its
    /// state is beside that of others.
    #[must_use]
    pub fn shared(config: &WorkerConfig, place: &PlaceId) -> Self {
        Self::at(config, place.as_str(), config.volume.join("state").join(config.session.as_str()))
    }

    /// The layout of the one session of a Pod.
    #[must_use]
    pub fn in_pod(config: &WorkerConfig) -> Self {
        let tree = Tree {
            work: paths::WORK.into(),
            home: paths::HOME.into(),
            scratch: paths::SCRATCH.into(),
            state: paths::STATE.into(),
        };
        let seen = |path: &PathBuf| (path.clone(), path.clone());
        let source = match &config.repository {
            Some(Repository::Local(path)) => Some(seen(path)),
            _ => None,
        };
        Self {
            tier: Tier::Pod,
            outside: tree.clone(),
            inside: tree,
            source,
            template: config.home_template.as_ref().map(seen),
            skills: config.skills.as_ref().map(seen),
            programs: config.programs.iter().map(seen).collect(),
        }
    }

    /// The tier that the agent's wall is built for.
    #[must_use]
    pub fn wall(&self) -> Tier {
        self.tier.wall()
    }

    /// Whether what no agent has business with is out of its view.
    fn hides(&self) -> bool {
        self.tier == Tier::Namespace
    }

    fn at(config: &WorkerConfig, place: &str, state: PathBuf) -> Self {
        let session = config.volume.join("sessions").join(place);
        let outside = Tree {
            work: session.join("work"),
            home: session.join("home"),
            scratch: session.join("scratch"),
            state,
        };
        let own = config.tier > Tier::Domain;
        let inside = if own {
            Tree {
                work: "/work".into(),
                home: "/home/agent".into(),
                scratch: "/tmp".into(),
                state: "/casemate/state".into(),
            }
        } else {
            outside.clone()
        };
        let seen = |path: &Path, name: &str| {
            (path.to_owned(), if own { PathBuf::from(name) } else { path.to_owned() })
        };
        let source = match &config.repository {
            Some(Repository::Local(path)) => Some(seen(path, "/casemate/source")),
            _ => None,
        };
        let programs = config.programs.iter().enumerate().map(|(index, path)| {
            let hidden = own && OWN.iter().any(|tree| path.starts_with(tree));
            let moved = hidden.then(|| moved_program(index, path));
            (path.clone(), moved.unwrap_or_else(|| path.clone()))
        });
        Self {
            programs: programs.collect(),
            tier: config.tier,
            outside,
            inside,
            source,
            template: config.home_template.as_ref().map(|path| seen(path, "/casemate/template")),
            skills: config.skills.as_ref().map(|path| seen(path, "/skills")),
        }
    }

    /// What the agent's wall is built for.
    #[must_use]
    pub fn places(&self, config: &WorkerConfig, file: Option<&Path>, ports: PortRange) -> Places {
        Places {
            work: self.inside.work.clone(),
            home: self.inside.home.clone(),
            scratch: self.inside.scratch.clone(),
            skills: self.skills.as_ref().map(|(_, inside)| inside.clone()),
            programs: self.programs.iter().map(|(_, inside)| inside.clone()).collect(),
            read: Vec::new(),
            never: self.never(config, file),
            private: self.private(config),
            ports,
            connect: config.connect.clone(),
            tier: self.wall(),
        }
    }

    /// What the wall around git is built for while it clones: the agent's `places`, and the source.
    #[must_use]
    pub fn cloning_places(&self, mut places: Places, port: Option<u16>) -> Places {
        places.read.extend(self.source.as_ref().map(|(_, inside)| inside.clone()));
        places.never.retain(|path| !places.read.contains(path));
        places.connect.extend(port);
        places
    }

    /// A word of the agent's command line as it reads inside: the path of a program that is shown elsewhere, or of
    /// something below it, is replaced.
    #[must_use]
    pub fn word_inside(&self, word: String) -> String {
        let path = Path::new(&word);
        let moved = self.programs.iter().find_map(|(outside, inside)| {
            let below = (outside != inside).then(|| path.strip_prefix(outside).ok()).flatten()?;
            // Joining an empty rest would add a slash.
            Some(if below.as_os_str().is_empty() { inside.clone() } else { inside.join(below) })
        });
        moved.map_or(word, |moved| moved.to_string_lossy().into_owned())
    }

    /// What no wall may grant. In tier `namespace` only what exists inside: an outer path has no meaning there, and may
    /// well begin like an inner one (`/tmp/...`).
    fn never(&self, config: &WorkerConfig, file: Option<&Path>) -> Vec<PathBuf> {
        let mut never = vec![self.inside.state.clone()];
        never.extend(self.source.as_ref().map(|(_, inside)| inside.clone()));
        if self.hides() {
            never.extend(self.template.as_ref().map(|(_, inside)| inside.clone()));
        } else {
            never.push(config.volume.join("run"));
            never.extend(file.map(Path::to_owned));
        }
        never
    }

    /// Of what the session's own places alone may be granted; what the tier hides cannot be granted at all.
    fn private(&self, config: &WorkerConfig) -> Vec<PathBuf> {
        if self.hides() { Vec::new() } else { config.private.clone() }
    }

    /// What must turn out closed when it is tried behind the agent's wall, before the first agent starts: the
    /// supervisor's own, the slot's lock, the source, the configuration, what is private, and the directory of every slot.
    #[must_use]
    pub fn walled(&self, config: &WorkerConfig, file: Option<&Path>) -> Vec<PathBuf> {
        let mut walled = vec![self.inside.state.clone(), config.volume.join("run").join("lock")];
        walled.extend(self.source.as_ref().map(|(_, inside)| inside.clone()));
        if self.hides() {
            walled.extend(self.template.as_ref().map(|(_, inside)| inside.clone()));
        }
        walled.extend(file.map(Path::to_owned));
        walled.extend(self.private(config));
        // Beside a Pod's volume there is the Pod.
        if self.tier != Tier::Pod {
            walled.push(self.decoy(config));
        }
        walled
    }

    /// The session's own places on the volume, its state included: what no other session may have anything of.
    #[must_use]
    pub fn own(&self) -> Vec<PathBuf> {
        let Tree { work, home, scratch, state } = self.outside.clone();
        vec![work, home, scratch, state]
    }

    /// What is gone inside before the agent starts, in a tier that can do that.
    #[must_use]
    pub fn passing(&self) -> Vec<&Path> {
        let trees = [&self.source, &self.template].into_iter().flatten();
        let all = std::iter::once(&self.inside.state).chain(trees.map(|(_, inside)| inside));
        all.map(PathBuf::as_path).filter(|path| path.starts_with(PASSING)).collect()
    }

    /// The directory of all slots: whether it is refused or does not exist tells the tier.
    #[must_use]
    pub fn decoy(&self, config: &WorkerConfig) -> PathBuf {
        config.volume.parent().unwrap_or(&config.volume).to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::config;

    #[test]
    fn the_worktree_is_at_a_constant_path_in_tier_namespace_and_at_its_own_in_tier_domain() {
        let mut config = config(Path::new("/v/slots/w"));
        config.tier = Tier::Namespace;
        assert_eq!(Layout::of(&config).inside.work, Path::new("/work"));
        config.tier = Tier::Domain;
        let layout = Layout::of(&config);
        assert_eq!(layout.inside, layout.outside);
    }

    #[test]
    fn in_a_pod_the_worktree_is_where_it_always_is_and_what_is_the_supervisors_is_walled() {
        let mut config = config(Path::new(paths::VOLUME));
        config.tier = Tier::Pod;
        config.private = vec![paths::VOLUME.into()];
        config.home_template = Some(paths::TEMPLATE.into());
        let layout = Layout::in_pod(&config);
        assert_eq!(layout.inside.work, Path::new("/work"));
        assert_eq!((layout.tier, layout.wall()), (Tier::Pod, Tier::Domain));
        let file = Path::new(paths::CONFIG);
        let places = layout.places(&config, Some(file), PortRange::behind(20_000));
        for never in [paths::STATE, paths::RUN, paths::CONFIG] {
            assert!(places.never.contains(&PathBuf::from(never)), "{never}");
        }
        assert_eq!(places.private, [PathBuf::from(paths::VOLUME)]);
        let walled = layout.walled(&config, Some(file));
        for closed in [paths::STATE, paths::CONFIG, paths::VOLUME, "/casemate/run/lock"] {
            assert!(walled.contains(&PathBuf::from(closed)), "{closed}");
        }
        assert!(!walled.contains(&PathBuf::from("/")), "beside its volume there is the Pod");
    }

    #[test]
    fn a_program_that_lies_where_the_worktree_is_shown_is_shown_elsewhere() {
        let mut config = config(Path::new("/v/slots/w"));
        config.tier = Tier::Namespace;
        config.programs = vec!["/srv/agent".into(), "/work/bin/agent".into()];
        let layout = Layout::of(&config);
        let inside: Vec<_> = layout.programs.iter().map(|(_, inside)| inside.clone()).collect();
        assert_eq!(inside, ["/srv/agent", "/programs/1/agent"].map(PathBuf::from));
        let word = |word: &str| layout.word_inside(word.to_owned());
        assert_eq!(word("/work/bin/agent"), "/programs/1/agent");
        assert_eq!(word("/work/bin/agent/lib/x.js"), "/programs/1/agent/lib/x.js");
        assert_eq!(word("/work/bin/agents"), "/work/bin/agents");
        assert_eq!(word("--flag"), "--flag");
        config.tier = Tier::Domain;
        assert_eq!(Layout::of(&config).word_inside("/work/bin/agent".into()), "/work/bin/agent");
    }

    #[test]
    fn the_source_is_granted_to_git_while_cloning_and_walled_from_the_agent() {
        let mut config = config(Path::new("/v/slots/w"));
        config.repository = Some(Repository::Local("/r/.git".into()));
        let layout = Layout::of(&config);
        let source = PathBuf::from("/r/.git");
        let places = layout.places(&config, None, PortRange::behind(20_000));
        assert!(places.never.contains(&source) && !places.connect.contains(&443));
        let cloning = layout.cloning_places(places, Some(443));
        assert!(!cloning.never.contains(&source) && cloning.read.contains(&source));
        assert!(cloning.connect.contains(&443));
    }
}
