//! The file as it is written: what serde reads, before any meaning is checked.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::egress::{Mode, Reach};
use super::words::{
    Access, Errno, Learning, LogSource, Resource, Scope, SocketCall, SocketFamily, SocketType,
    Telling,
};
use crate::tier::Tier;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) version: Spanned<u32>,
    pub(super) name: Spanned<String>,
    #[serde(default = "weakest")]
    pub(super) tier: Tier,
    #[serde(default)]
    pub(super) denials: Telling,
    #[serde(default)]
    pub(super) learning: Learning,
    pub(super) landlock: Spanned<Landlock>,
    #[serde(default)]
    pub(super) path: Vec<Spanned<Path>>,
    #[serde(default)]
    pub(super) tcp: Vec<Spanned<Ports>>,
    #[serde(default)]
    pub(super) udp: Vec<Spanned<Ports>>,
    pub(super) egress: Option<Spanned<Egress>>,
    #[serde(default)]
    pub(super) host: Vec<Spanned<Host>>,
    #[serde(default)]
    pub(super) scope: Vec<Spanned<ScopeEntry>>,
    #[serde(default)]
    pub(super) syscall: Vec<Spanned<Syscall>>,
    pub(super) sockets: Spanned<Sockets>,
    #[serde(default)]
    pub(super) socket: Vec<Spanned<Socket>>,
    #[serde(default)]
    pub(super) environment: Vec<Spanned<Environment>>,
    #[serde(default)]
    pub(super) rlimit: Vec<Spanned<Rlimit>>,
    pub(super) log: Option<Spanned<Log>>,
    pub(super) bounds: Option<Spanned<super::bounds::File>>,
}

fn weakest() -> Tier {
    Tier::Domain
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Landlock {
    pub(super) abi: Spanned<u32>,
    pub(super) reason: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Path {
    pub(super) path: Spanned<String>,
    pub(super) access: Spanned<Vec<Access>>,
    #[serde(default)]
    pub(super) required: bool,
    #[serde(default = "weakest")]
    pub(super) tier: Tier,
    pub(super) reason: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ports {
    #[serde(default)]
    pub(super) connect: Vec<Spanned<toml::Value>>,
    #[serde(default)]
    pub(super) bind: Vec<Spanned<toml::Value>>,
    pub(super) reason: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Egress {
    pub(super) mode: Spanned<Mode>,
    pub(super) reason: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Host {
    pub(super) names: Spanned<Vec<Spanned<String>>>,
    pub(super) reach: Option<Spanned<Vec<Reach>>>,
    pub(super) reason: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScopeEntry {
    pub(super) kind: Spanned<Scope>,
    pub(super) reason: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Syscall {
    pub(super) names: Spanned<Vec<String>>,
    pub(super) errno: Errno,
    #[serde(default)]
    pub(super) when: Vec<Spanned<When>>,
    pub(super) reason: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct When {
    pub(super) arg: u8,
    pub(super) bits: u8,
    pub(super) op: Op,
    pub(super) value: i64,
    pub(super) mask: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Op {
    Equal,
    NotEqual,
    Less,
    Greater,
    MaskedEqual,
    AnyBits,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sockets {
    pub(super) errno: Errno,
    pub(super) reason: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Socket {
    pub(super) family: SocketFamily,
    pub(super) types: Spanned<Vec<SocketType>>,
    pub(super) protocols: Spanned<Vec<u32>>,
    pub(super) calls: Option<Spanned<Vec<SocketCall>>>,
    #[serde(default = "weakest")]
    pub(super) tier: Tier,
    #[serde(default)]
    pub(super) abi: u32,
    pub(super) reason: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Environment {
    #[serde(default)]
    pub(super) pass: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) set: BTreeMap<String, Spanned<String>>,
    pub(super) reason: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rlimit {
    pub(super) resource: Spanned<Resource>,
    pub(super) soft: Spanned<toml::Value>,
    pub(super) hard: Spanned<toml::Value>,
    pub(super) reason: Spanned<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Log {
    pub(super) what: Spanned<Vec<LogSource>>,
    #[serde(default)]
    pub(super) required: bool,
    pub(super) reason: Spanned<String>,
}
