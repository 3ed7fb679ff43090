//! Profiles: named, administrator-owned choices, `profiles/NAME.toml`, and the built-in `default`.
//!
//! Read anew at each allocation; a session keeps what it was made with. An unknown field is an error with its line: a
//! mistyped limit must not become no limit.

use std::path::{Path, PathBuf};
use std::time::Duration;

use casemate_allocator_core::record::CloseRule;
use casemate_protocol::origin::Origin;
use casemate_protocol::policy::{Policy, Size};
use casemate_protocol::tier::Tier;
use casemate_protocol::worker;
use serde::{Deserialize, Deserializer};

/// Why there is no such profile.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProfileError {
    /// Not a file name.
    #[error(
        "`{0}` is not a profile name; use letters, digits, `-`, `_` and `.`, beginning with a letter or digit"
    )]
    Name(String),
    /// No file.
    #[error("no profile `{name}`; write {path}, or use `default`")]
    NotFound {
        /// The name.
        name: String,
        /// Where it would be.
        path: PathBuf,
    },
    /// Not readable.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A wrong field or value.
    #[error("{path}: {message}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// What, with line and column.
        message: String,
    },
}

/// A profile.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Profile {
    /// A built-in policy's name, or the absolute path of a policy file.
    pub policy: String,
    /// Central skills: a directory, read-only in each session.
    pub skills: Option<PathBuf>,
    /// A directory that is copied into each new HOME.
    pub home_template: Option<PathBuf>,
    /// Further programs, readable and executable: absolute paths.
    pub programs: Vec<PathBuf>,
    /// Variables that the agent gets from the allocator's own environment: names.
    pub env: Vec<String>,
    /// Further TCP ports that the agent may connect to.
    pub connect: Vec<u16>,
    /// Workers' doors are encrypted.
    pub tls: bool,
    /// The pages that may attach to a worker.
    pub origins: Vec<Origin>,
    /// The repository where the caller names none.
    pub repository: Option<String>,
    /// A worker idle for so long is stopped.
    #[serde(deserialize_with = "duration")]
    pub idle_ttl: Duration,
    /// How long a permission request waits for a client.
    #[serde(deserialize_with = "duration")]
    pub permission_ttl: Duration,
    /// How much is kept on the disk for a client that takes nothing, in bytes.
    #[serde(deserialize_with = "size")]
    pub kept: u64,
    /// How long an agent of which no more can be kept waits, until its turn is cancelled.
    #[serde(deserialize_with = "duration")]
    pub blocked_ttl: Duration,
    /// Between TERM and KILL.
    #[serde(deserialize_with = "duration")]
    pub grace: Duration,
    /// What a close does to storage without unpushed work.
    pub close: Close,
    /// The weakest tier that will do.
    pub tier: Tier,
    /// Who shares a worker.
    pub sharing: Sharing,
}

/// `sharing = "session"` or `sharing = "user"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Sharing {
    /// Nobody: a worker a session.
    #[default]
    Session,
    /// The sessions of one user.
    User,
}

/// `close = "delete"` or `close = { retain = "7d" }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Close {
    /// Deletes.
    Delete,
    /// Keeps for a while.
    Retain(#[serde(deserialize_with = "duration")] Duration),
}

impl From<Close> for CloseRule {
    fn from(close: Close) -> Self {
        match close {
            Close::Delete => Self::Delete,
            Close::Retain(age) => Self::Retain(age.as_secs()),
        }
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            policy: "developer".to_owned(),
            skills: None,
            home_template: None,
            programs: Vec::new(),
            env: Vec::new(),
            connect: Vec::new(),
            tls: false,
            origins: Vec::new(),
            repository: None,
            idle_ttl: Duration::from_secs(30 * 60),
            permission_ttl: Duration::from_secs(10 * 60),
            kept: worker::kept(),
            blocked_ttl: Duration::from_secs(worker::blocked_ttl()),
            grace: Duration::from_secs(5),
            close: Close::Delete,
            tier: Tier::Domain,
            sharing: Sharing::Session,
        }
    }
}

/// The policy of each profile of a directory that names a file of its own. One that cannot be read starts no session.
pub(crate) fn policies(directory: &Path) -> Vec<(String, Policy)> {
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = files.filter_map(|file| {
        let name = file.file_name().into_string().ok()?;
        name.strip_suffix(".toml").map(str::to_owned)
    });
    let policy = |name: &str| {
        let profile = Profile::load(directory, name).ok()?;
        let text = std::fs::read_to_string(Some(profile.policy).filter(|at| at.starts_with('/'))?);
        Policy::parse(&text.ok()?).ok()
    };
    names.filter_map(|name| policy(&name).map(|policy| (name, policy))).collect()
}

impl Profile {
    /// Reads a profile from the directory of profiles. `default` needs no file.
    ///
    /// # Errors
    /// [`ProfileError`].
    pub(crate) fn load(directory: &Path, name: &str) -> Result<Self, ProfileError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if !first || name.len() > 64 || !name.bytes().all(plain) {
            return Err(ProfileError::Name(name.to_owned()));
        }
        let path = directory.join(format!("{name}.toml"));
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let profile: Self = toml::from_str(&text).map_err(|error| ProfileError::Parse {
                    path: path.clone(),
                    message: located(&text, &error),
                })?;
                profile.check().map_err(|message| ProfileError::Parse { path, message })?;
                Ok(profile)
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                if name == "default" {
                    Ok(Self::default())
                } else {
                    Err(ProfileError::NotFound { name: name.to_owned(), path })
                }
            }
            Err(source) => Err(ProfileError::Io { path, source }),
        }
    }

    fn check(&self) -> Result<(), String> {
        let paths = self.skills.iter().chain(&self.home_template).chain(&self.programs);
        for path in paths {
            if !path.is_absolute() {
                return Err(format!("`{}` is relative; write an absolute path", path.display()));
            }
        }
        for name in &self.env {
            if !is_variable_name(name) {
                return Err(format!("`{name}` is not a variable name (env takes names only)"));
            }
        }
        if self.connect.contains(&0) {
            return Err("port 0 cannot be connected to".to_owned());
        }
        if self.idle_ttl.is_zero() {
            return Err("idle_ttl must be above zero".to_owned());
        }
        // A worker counts them in seconds: a shorter one would be none.
        let in_seconds = [
            ("permission_ttl", self.permission_ttl),
            ("blocked_ttl", self.blocked_ttl),
            ("grace", self.grace),
        ];
        for (name, given) in in_seconds {
            if given.subsec_nanos() != 0 {
                return Err(format!("{name} must be whole seconds (`{}s`)", given.as_secs() + 1));
            }
        }
        for (name, given) in &in_seconds[1..] {
            if given.is_zero() {
                return Err(format!("{name} must be at least one second"));
            }
        }
        Ok(())
    }
}

/// `[A-Za-z_][A-Za-z0-9_]*`, as in POSIX (XBD 8.1).
#[must_use]
pub(crate) fn is_variable_name(name: &str) -> bool {
    !name.is_empty()
        && !name.as_bytes()[0].is_ascii_digit()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// One line instead of toml's drawing.
fn located(text: &str, error: &toml::de::Error) -> String {
    match error.span() {
        Some(span) => {
            let before = &text[..span.start.min(text.len())];
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
            format!("line {line}, column {column}: {}", error.message())
        }
        None => error.message().to_owned(),
    }
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_duration(&text).ok_or_else(|| {
        serde::de::Error::custom(format!(
            "`{text}` is not a duration; write a whole number and ms, s, m, h or d (`30m`)"
        ))
    })
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let text = String::deserialize(deserializer)?;
    let size = Size::parse(&text).ok_or_else(|| {
        serde::de::Error::custom(format!(
            "`{text}` is not a size; write a whole number and KiB, MiB, GiB or TiB (`1GiB`)"
        ))
    })?;
    Ok(size.0)
}

/// `500ms`, `30s`, `10m`, `2h`, `7d`.
fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        "d" => 24 * 60 * 60 * 1000,
        _ => return None,
    };
    number.checked_mul(millis).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Profile, ProfileError> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("p.toml"), text).unwrap();
        Profile::load(dir.path(), "p")
    }

    #[test]
    fn all_fields_are_read() {
        let profile = load(
            "policy = '/etc/p.toml'\nskills = '/s'\nhome_template = '/h'\nprograms = ['/opt/x']\n\
             env = ['KEY']\nconnect = [8080]\norigins = ['https://app.example']\ntls = true\nrepository = 'https://example.org/r'\n\
             idle_ttl = '500ms'\npermission_ttl = '2h'\nkept = '3MiB'\nblocked_ttl = '4m'\ngrace = '1s'\nclose = { retain = '7d' }\n\
             tier = 'namespace'\nsharing = 'user'\n",
        )
        .unwrap();
        assert_eq!(profile.idle_ttl, Duration::from_millis(500));
        assert_eq!(CloseRule::from(profile.close), CloseRule::Retain(7 * 86_400));
        assert!(profile.tls);
        assert_eq!(profile.origins, ["https://app.example".parse().unwrap()]);
        assert_eq!((profile.kept, profile.blocked_ttl), (3 << 20, Duration::from_secs(240)));
        assert_eq!((profile.tier, profile.sharing), (Tier::Namespace, Sharing::User));
    }

    #[test]
    fn mistakes_name_their_line() {
        for (text, line) in [
            ("policy = 'developer'\nidle_tll = '30m'\n", "line 2, column 1"),
            ("idle_ttl = '30'\n", "line 1"),
            ("\n\nclose = 'keep'\n", "line 3"),
            ("sharing = 'everybody'\n", "line 1"),
            ("\norigins = ['https://app.example/']\n", "line 2"),
        ] {
            let error = load(text).unwrap_err().to_string();
            assert!(error.contains(line), "{error}");
        }
        for text in [
            "skills = 'relative'",
            "env = ['A=b']",
            "idle_ttl = '0s'",
            "connect = [0]",
            "grace = '0s'",
            "blocked_ttl = '0s'",
            "kept = '3'",
            "grace = '1500ms'",
            "permission_ttl = '500ms'",
        ] {
            assert!(matches!(load(text), Err(ProfileError::Parse { .. })), "{text}");
        }
    }

    #[test]
    fn a_name_cannot_leave_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["../p", "", ".hidden", "a/b", "a\0b"] {
            assert!(
                matches!(Profile::load(dir.path(), name), Err(ProfileError::Name(_))),
                "{name}"
            );
        }
        assert!(matches!(Profile::load(dir.path(), "nope"), Err(ProfileError::NotFound { .. })));
        assert_eq!(Profile::load(dir.path(), "default").unwrap(), Profile::default());
    }
}
