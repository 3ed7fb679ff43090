//! Every attack that is known, as data: what it does, where it was described, what stops it, what each tier promises.
//!
//! [`run`] tries all of them, each in a child process of its own, from wherever it is called: in a session, where the
//! walls are measured, or without any wall, where each must succeed or it would prove nothing.

mod attack;
mod calls;
mod closed;
mod decoys;
mod files;
mod git;
mod house;
mod ipc;
mod kernel;
mod machine;
mod metadata;
mod mounts;
mod network;
mod process;
mod procfs;
mod run;
mod shot;
mod supervisor;
mod victim;

pub use attack::{Attack, Defence, Expected, Target};
pub use closed::closed_here;
pub use decoys::{Decoys, Planted, outsider};
pub use run::{Answer, RunError, UNTRIED, run};
pub use victim::{Victim, is_asleep};

/// All of them, by target.
const ATTACKS: &[&[Attack]] = &[
    files::ATTACKS,
    metadata::ATTACKS,
    git::ATTACKS,
    house::ATTACKS,
    process::ATTACKS,
    procfs::ATTACKS,
    supervisor::ATTACKS,
    network::ATTACKS,
    ipc::ATTACKS,
    kernel::ATTACKS,
    mounts::ATTACKS,
    machine::ATTACKS,
];

/// All of them.
pub fn attacks() -> impl Iterator<Item = &'static Attack> {
    ATTACKS.iter().flat_map(|part| part.iter())
}

/// The one of this id.
#[must_use]
pub fn attack(id: &str) -> Option<&'static Attack> {
    attacks().find(|attack| attack.id == id)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Whoever keeps a matrix keeps it by id.
    #[test]
    fn an_id_is_kebab_case_and_of_one_attack() {
        let mut seen = HashSet::new();
        for attack in attacks() {
            let plain =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            assert!(attack.id.bytes().all(plain), "{}", attack.id);
            assert!(seen.insert(attack.id), "{} twice", attack.id);
            assert!(!attack.does.is_empty() && !attack.source.is_empty(), "{}", attack.id);
        }
    }

    #[test]
    fn what_an_attack_is_promised_fits_what_stops_it() {
        for attack in attacks() {
            let refused = |expected| matches!(expected, Expected::Refused(_));
            let elsewhere = refused(attack.namespace) || attack.namespace == Expected::Own;
            let stopped = refused(attack.domain) || elsewhere;
            assert_eq!(stopped, !attack.defences.contains(&Defence::Nothing), "{}", attack.id);
            let by_namespace = attack.defences == [Defence::Namespace];
            assert_eq!(attack.domain == Expected::Leaks && stopped, by_namespace, "{}", attack.id);
        }
    }
}
