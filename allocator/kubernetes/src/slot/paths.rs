//! Where things are in a worker's Pod. The same in every Pod of every profile.

/// The port of a worker's door.
pub const DOOR: u16 = 8443;

/// The supervisor, where it comes from an image of its own.
pub(super) const PROGRAM: &str = "/casemate/bin";
/// The slot's certificate and configuration.
pub(super) const SLOT: &str = "/casemate/slot";
/// The session's files.
pub(super) const VOLUME: &str = "/casemate/volume";
/// The policy.
pub(super) const POLICY: &str = "/casemate/policy";
/// What a new HOME is copied from.
pub(super) const TEMPLATE: &str = "/casemate/template";
/// Configuration beside HOME.
pub(super) const BASELINE: &str = "/casemate/baseline";
/// Secrets, a directory each by its number in the profile.
pub(super) const CREDENTIALS: &str = "/casemate/credentials";
/// The private certificate authority.
pub(super) const AUTHORITY: &str = "/casemate/authority";
/// Skills.
pub(super) const SKILLS: &str = "/skills";
/// The one other place that can be written: the root is read-only.
pub(super) const SCRATCH: &str = "/tmp";
