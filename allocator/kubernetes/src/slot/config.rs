//! What a worker is told: by its slot before it has a session, by the bind whose it is.

use std::net::{Ipv4Addr, SocketAddr};

use casemate_protocol::origin::Origin;
use casemate_protocol::ports::PortPool;
use casemate_protocol::slot::{Canary, CertificateFiles, SlotConfig, SlotPolicy, Terms, paths};
use casemate_protocol::token::PublicKey;
use casemate_protocol::worker::{AgentCommand, Repository};

use super::{DOOR, Slot, Unbuildable};
use crate::resource::WorkerProfileSpec;
use crate::resource::profile::{CredentialUse, Policy};
use crate::resource::text::{Label, Revision};

/// How long a worker waits for its network policy to be in force, in seconds.
const CANARY: u64 = 60;

/// The one session of a Pod has all ports that a session may have, the same at each start.
const PORTS: PortPool = PortPool { first: 20_000, ranges: 1, preferred: 0 };

/// A workspace that the profile does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoWorkspace(Label);

impl std::fmt::Display for NoWorkspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the profile has no workspace `{}`", self.0)
    }
}

impl std::error::Error for NoWorkspace {}

/// What a slot's Secret tells its worker. `key`: whose binds and tokens it takes.
///
/// # Errors
/// [`Unbuildable`].
pub fn worker_config(slot: Slot<'_>, key: PublicKey) -> Result<SlotConfig, Unbuildable> {
    let spec = &slot.profile.spec;
    let mut programs = Vec::new();
    if spec.home.baseline.is_some() {
        programs.push(paths::BASELINE.into());
    }
    if spec.network.private_ca.is_some() {
        programs.push(paths::AUTHORITY.into());
    }
    let mut secrets = std::collections::BTreeMap::new();
    for (number, credential) in spec.credentials.iter().enumerate() {
        match &credential.purpose {
            CredentialUse::AgentVariable { name } => {
                let path = format!("{}/{number}/{}", paths::CREDENTIALS, credential.secret.key);
                secrets.insert(name.to_string(), path.into());
            }
            CredentialUse::Route { .. } => {
                return Err(Unbuildable::Credential { what: "for.route" });
            }
            CredentialUse::Git { .. } => return Err(Unbuildable::Credential { what: "for.git" }),
        }
    }
    Ok(SlotConfig {
        name: slot.name.clone(),
        verify_key: key,
        verify_also: Vec::new(),
        tier: spec.tier.into(),
        listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, DOOR)),
        tls: Some(CertificateFiles { chain: paths::CHAIN.into(), key: paths::KEY.into() }),
        plain: false,
        canary: Canary::Refused { within: CANARY },
        policy: match &spec.policy {
            Policy::BuiltIn { name } => SlotPolicy::BuiltIn(name.name().to_owned()),
            Policy::ConfigMap { key, revision, .. } => SlotPolicy::File {
                path: format!("{}/{key}", paths::POLICY).into(),
                revision: Some(hexadecimal(revision)),
            },
        },
        skills: spec.skills.as_ref().map(|_| paths::SKILLS.into()),
        home_template: spec.home.template.as_ref().map(|_| paths::TEMPLATE.into()),
        programs,
        secrets,
        ports: PORTS,
    })
}

/// What the bind says of the session.
///
/// # Errors
/// [`NoWorkspace`].
pub fn bind_terms(
    profile: &WorkerProfileSpec,
    workspace: Option<&Label>,
) -> Result<Terms, NoWorkspace> {
    let repository = workspace
        .map(|alias| {
            let found = profile.workspaces.get(alias).ok_or_else(|| NoWorkspace(alias.clone()))?;
            Ok(Repository::Remote(found.repository.to_string()))
        })
        .transpose()?;
    let lifetime = &profile.lifetime;
    let env = profile.agent.env.iter().map(|(name, value)| (name.to_string(), value.clone()));
    Ok(Terms {
        repository,
        agent: AgentCommand { argv: profile.agent.command.clone(), env: env.collect() },
        policy_revision: match &profile.policy {
            Policy::BuiltIn { .. } => None,
            Policy::ConfigMap { revision, .. } => Some(hexadecimal(revision)),
        },
        skills_revision: profile
            .skills
            .as_ref()
            .and_then(|skills| skills.revision.as_ref())
            .map(hexadecimal),
        connect: Vec::new(),
        // Text that is no page was refused by the API server.
        origins: profile
            .network
            .origins
            .iter()
            .filter_map(|origin| origin.parse::<Origin>().ok())
            .collect(),
        permission_ttl: lifetime.permission.duration().as_secs(),
        kept: casemate_protocol::worker::kept(),
        blocked_ttl: lifetime.blocked.duration().as_secs(),
        grace: lifetime.grace.duration().as_secs(),
    })
}

fn hexadecimal(revision: &Revision) -> String {
    revision.as_str().trim_start_matches("sha256:").to_owned()
}
