//! The command line of `casemate-supervisor exec`, and what of it is refused.

use std::path::{Path, PathBuf};
use std::time::Duration;

use casemate_protocol::codes::exit;
use casemate_protocol::policy::{Policy, built_in};
use casemate_protocol::ports::{self, PortRange};
use casemate_protocol::tier::Tier;
use casemate_sandbox::{Places, Reach, Reached, check_paths};
use nix::unistd::geteuid;

use super::file::within;
use super::layers::{Chosen, Layer};
use super::{Refused, casemates, not_built, usage};

/// Runs a command behind a policy's walls, as the init of its container or below any other.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Options {
    /// `developer`, `strict`, `audit`, or a policy file
    #[arg(long, value_name = "POLICY", default_value = "developer")]
    policy: String,
    /// Only these layers: weaker than the policy
    #[arg(long, value_name = "LAYER", value_delimiter = ',', conflicts_with = "without")]
    layers: Vec<Layer>,
    /// All layers but this one: weaker than the policy
    #[arg(long, value_name = "LAYER", value_delimiter = ',')]
    without: Vec<Layer>,
    /// What else is in this container: `domain`, others whose files must be refused; `namespace` or `pod`, nobody. Taken at your word
    #[arg(long, value_name = "TIER", default_value = "domain", value_parser = tier)]
    tier: Tier,
    /// {work}: where it runs and may write (default: the working directory)
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// {home} (default: $HOME)
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
    /// {scratch} (default: $TMPDIR, else /tmp)
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// {skills}: readable
    #[arg(long, value_name = "DIR")]
    skills: Option<PathBuf>,
    /// {programs}: it may read and run this file, or what is below this directory
    #[arg(long, value_name = "PATH")]
    program: Vec<PathBuf>,
    /// {connect}: it may connect to this TCP port as well
    #[arg(long, value_name = "PORT", value_parser = port)]
    connect: Vec<u16>,
    /// {ports}: it may listen there, PORT or FIRST-LAST
    #[arg(long, value_name = "PORTS", value_parser = ports)]
    ports: Option<PortRange>,
    /// Add a variable; NAME alone takes the value from here
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Become this user first (and the group of the same number)
    #[arg(long, value_name = "UID")]
    pub(super) user: Option<u32>,
    /// Seconds between TERM and KILL
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    grace: u64,
    /// Write what holds, as JSON, to this file (or /dev/fd/N) before it starts
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
    /// NO WALL: let the run do whatever its user may, and write to this new file the policy that would have let it pass, for you to read and
    /// accept. For a machine of your own
    #[arg(long, value_name = "FILE")]
    pub(super) learn: Option<PathBuf>,
    /// The command, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

const HELP: &str = "\
Exit codes: the command's own, or 128 + its signal; 126 it cannot be run, 127 it is not found; 76 it took more than the policy's
[bounds] and was ended; where it was not started:
64 command line, 65 policy, 66 policy file, 70 shield, 71 the kernel lacks what the policy requires, 73 a file of
--report or --learn, 77 user, or learning is not allowed, 78 tier.
See docs/exec.md.";

/// What the walls are built for.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) places: Places,
    /// What the command may write.
    pub(super) reach: Reach,
    pub(super) user: Option<u32>,
}

fn tier(text: &str) -> Result<Tier, String> {
    serde_json::from_value(serde_json::Value::String(text.to_owned()))
        .map_err(|_| "domain, namespace or pod".to_owned())
}

fn ports(text: &str) -> Result<PortRange, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let range = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => last
            .checked_sub(first)
            .and_then(|more| more.checked_add(1))
            .map(|count| PortRange { first, count })
            .ok_or_else(|| "too many ports".to_owned())?,
        _ => return Err("PORT or FIRST-LAST, from 1 to 65535".to_owned()),
    };
    range.iter().find_map(ports::foreign).map_or(Ok(range), Err)
}

fn port(text: &str) -> Result<u16, String> {
    match ports(text) {
        Ok(PortRange { first, count: 1 }) => Ok(first),
        Ok(_) => Err("PORT, from 1 to 65535".to_owned()),
        Err(why) => Err(why),
    }
}

// === impl Options ===

impl Options {
    pub(super) fn layers(&self) -> Chosen {
        Chosen::of(&self.layers, &self.without)
    }

    pub(super) fn grace(&self) -> Duration {
        Duration::from_secs(self.grace)
    }

    /// The policy, with its text.
    pub(super) fn policy(&self) -> Result<(String, Policy), Refused> {
        let text = match built_in(&self.policy) {
            Some(text) => text.to_owned(),
            None => std::fs::read_to_string(&self.policy).map_err(|error| Refused {
                code: exit::NO_INPUT,
                message: format!(
                    "--policy {}: {error}; `developer`, `strict` and `audit` are built in",
                    self.policy
                ),
            })?,
        };
        let policy = Policy::parse(&text).map_err(|error| Refused {
            code: exit::DATA,
            message: format!("--policy {}: {error}", self.policy),
        })?;
        Ok((text, policy))
    }

    /// The places, each a directory and none of them everything.
    pub(super) fn check(&self, policy: &Policy, text: &str) -> Result<Checked, Refused> {
        if self.layers.contains(&Layer::Bounds) && !self.layers().walls.scope {
            return Err(usage(
                "--layers bounds: they are counted in the scope: keep the layer scope",
            ));
        }
        if self.tier < policy.tier {
            return Err(Refused {
                code: exit::TIER,
                message: format!(
                    "policy \"{0}\" needs tier {1}: where nothing else runs in this container, say --tier pod",
                    policy.name, policy.tier
                ),
            });
        }
        let own = |name| std::env::var_os(name).map(PathBuf::from);
        let here = std::env::current_dir().unwrap_or_default();
        let named = [
            ("--work", self.work.clone().unwrap_or_else(|| here.clone())),
            ("--home", self.home.clone().or_else(|| own("HOME")).unwrap_or_default()),
            (
                "--scratch",
                self.scratch.clone().or_else(|| own("TMPDIR")).unwrap_or_else(|| "/tmp".into()),
            ),
        ];
        let [work, home, scratch] = [0, 1, 2].map(|which: usize| {
            let (option, path) = &named[which];
            place(option, path)
        });
        let (work, home, scratch) = (work?, home?, scratch?);
        let mut places = Places {
            skills: self.skills.clone().map(|path| absolute("--skills", &path)).transpose()?,
            programs: self
                .program
                .iter()
                .map(|path| absolute("--program", path))
                .collect::<Result<_, _>>()?,
            ports: self.ports.unwrap_or(PortRange { first: 1, count: 0 }),
            connect: self.connect.clone(),
            ..Places::new(work, home, scratch, self.tier)
        };
        let further = self.skills.iter().map(|path| ("--skills", path));
        let further = further.chain(self.program.iter().map(|path| ("--program", path)));
        let named: Vec<_> =
            named.iter().map(|(option, path)| (*option, path)).chain(further).collect();
        if self.layers().walls.landlock {
            places.never = casemates::homes(self.user.unwrap_or(geteuid().as_raw()));
            let all = named.iter().map(|(option, path)| (*option, path.as_path()));
            casemates::refuse(all, &places.never)?;
            // Who becomes another sees less of the machine then.
            if self.user.is_some() {
                check_paths(policy, &places).map_err(|error| not_built(&error, text))?;
            }
        }
        // An earlier command may have turned what is named below its own places to something else.
        let reach = Reach::of(policy, &places).map_err(|error| not_built(&error, text))?;
        for (option, path) in named {
            let path = here.join(path);
            if let Some(link) = reach.link(&path) {
                return Err(usage(format!(
                    "{option} {}: {} is a link where the command may write, so that it could lead to anything the next time: \
                     name the path that it leads to",
                    path.display(),
                    link.display()
                )));
            }
        }
        self.policy_is_beyond(&reach)?;
        Ok(Checked { places, reach, user: self.user })
    }

    /// A command that writes the file of its own policy has chosen the next one's.
    fn policy_is_beyond(&self, reach: &Reach) -> Result<(), Refused> {
        if built_in(&self.policy).is_some() {
            return Ok(());
        }
        let path = Path::new(&self.policy);
        reach.lies_beyond(path).map_err(|error| match error {
            Reached::Written(place) => within("--policy", path, &place),
            Reached::Io(error) => Refused {
                code: exit::NO_INPUT,
                message: format!("--policy {}: {error}", self.policy),
            },
        })
    }

    pub(super) fn variables(&self) -> Result<Vec<(String, String)>, Refused> {
        let variable = |text: &String| match text.split_once('=') {
            Some(("", _)) => Err(usage("--env: a variable has a name")),
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => match std::env::var(text) {
                Ok(value) => Ok((text.clone(), value)),
                Err(_) => Err(usage(format!("--env {text}: it is not set here; write NAME=VALUE"))),
            },
        };
        self.env.iter().map(variable).collect()
    }
}

fn absolute(option: &str, path: &Path) -> Result<PathBuf, Refused> {
    path.canonicalize().map_err(|error| usage(format!("{option} {}: {error}", path.display())))
}

/// A place that the command may write everywhere below. `/` would be everything there is.
fn place(option: &str, path: &Path) -> Result<PathBuf, Refused> {
    let found = if path.as_os_str().is_empty() {
        return Err(usage(format!("{option}: name a directory")));
    } else {
        absolute(option, path)?
    };
    if found == Path::new("/") || !found.is_dir() {
        return Err(usage(format!(
            "{option} {}: name a directory that the command may write below, and not /",
            found.display()
        )));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_one_or_a_range() {
        assert_eq!(ports("80"), Ok(PortRange { first: 80, count: 1 }));
        assert_eq!(ports("8000-8009"), Ok(PortRange { first: 8000, count: 10 }));
        for wrong in
            ["", "0", "9-8", "1-", "x", "70000", "20000", "31999", "8000-40000", "19990-20000"]
        {
            assert!(ports(wrong).is_err() && port(wrong).is_err(), "{wrong}");
        }
        assert_eq!((port("19999"), port("32000")), (Ok(19_999), Ok(32_000)));
        assert!(port("80-81").is_err());
    }

    #[test]
    fn everything_is_no_place() {
        for path in ["/", "/tmp/..", "", "/etc/passwd"] {
            assert!(place("--home", Path::new(path)).is_err(), "{path}");
        }
        assert_eq!(place("--home", Path::new("/tmp")), Ok("/tmp".into()));
    }
}
