//! Where machines, Pods and casemate itself have keys and tokens under fixed names: what no policy may grant.
//!
//! Pure, by name alone. Links, bind mounts, directories above and volumes elsewhere are looked for where a wall is built.

use std::path::Path;

/// Where secrets are mounted, whatever the machine is: Docker's, Podman's and Kubernetes' (a Pod's own token too), by both of its names;
/// systemd's credentials (systemd.exec(5)); what a Vault agent injects.
pub const MOUNTED: [&str; 4] =
    ["/run/secrets", "/var/run/secrets", "/run/credentials", "/vault/secrets"];

/// Where a worker in namespaces of its own has its state, the repository and the HOME template until its agent starts.
pub const OWN: &str = "/casemate";

/// All of them.
pub fn all() -> impl Iterator<Item = &'static str> {
    MOUNTED.into_iter().chain([OWN])
}

/// The place that a path is or lies in. Without links: the path as it is written.
#[must_use]
pub fn holding(path: &Path) -> Option<&'static str> {
    all().find(|place| path.starts_with(place))
}

/// The place that a rule for this directory would grant with all else below it, whether the machine has one yet or not: the next mount
/// would be granted too. `/var` is left to a look at the machine, since `/var/run` has been a link to `/run` for long (FHS 3.0).
#[must_use]
pub fn below(path: &Path) -> Option<&'static str> {
    let above = |place: &&str| Path::new(place).starts_with(path) && path != Path::new("/var");
    all().find(above)
}

/// Whether a path is such a place, lies in one or is a directory that one is in.
#[must_use]
pub fn meets(path: &Path) -> bool {
    holding(path).is_some() || all().any(|place| Path::new(place).starts_with(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_met_at_it_in_it_and_above_it() {
        for (path, held, met) in [
            ("/run/secrets", true, true),
            ("/run//secrets/kubernetes.io/serviceaccount/token", true, true),
            ("/casemate/state", true, true),
            ("/run", false, true),
            ("/", false, true),
            ("/run/secrets-of-another", false, false),
            ("/usr", false, false),
        ] {
            let path = Path::new(path);
            assert_eq!((holding(path).is_some(), meets(path)), (held, met), "{}", path.display());
            assert_eq!(
                below(path).is_some(),
                met && (!held || all().any(|own| Path::new(own) == path))
            );
        }
        assert_eq!((below(Path::new("/var")), meets(Path::new("/var"))), (None, true));
    }
}
