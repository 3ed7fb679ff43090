//! Hosts: what `[egress]` says of one, beside what the ports say.

use super::{Cited, Decision};
use crate::policy::egress::{Egress, Host, Mode};
use crate::policy::{Errno, Policy};

/// Whether a host, a name or an address, may be spoken to at a port. Only what `[egress]` says: [`super::port`] has to
/// allow it as well.
#[must_use]
pub fn host(policy: &Policy, host: &str, port: u16) -> Decision {
    let Some(egress) = &policy.egress else {
        return Decision::allowed(None)
            .note("the policy has no [egress]: every host, at the ports that are named");
    };
    let section =
        || Some(Cited::new(egress.line, format!("[egress] mode {}", egress.mode), &egress.reason));
    let decision = match egress.mode {
        Mode::Open => Decision::allowed(section()).note("every host, at the ports that are named"),
        Mode::None => Decision::refused(section(), Errno::Eacces),
        Mode::AllowList => listed(egress, host, port).unwrap_or_else(|| {
            Decision::refused(section(), Errno::Eacces).note("no [[host]] rule names it")
        }),
    };
    match egress.unenforced() {
        None => decision,
        Some(why) => decision.note(format!("mode {} is {why}", egress.mode)),
    }
}

fn listed(egress: &Egress, host: &str, port: u16) -> Option<Decision> {
    egress.hosts.iter().find_map(|rule| {
        let pattern = rule.names.iter().find(|pattern| pattern.covers(host, port))?;
        let cited = Cited::new(rule.line, format!("[[host]] {pattern}"), &rule.reason);
        let decision = Decision::allowed(Some(cited));
        Some(match pattern.host {
            Host::Address(_) => decision,
            Host::Name(_) | Host::Below(_) => {
                let kinds: Vec<_> = rule.reach.iter().map(ToString::to_string).collect();
                decision.note(format!("where it leads to a {} address", kinds.join(" or ")))
            }
        })
    })
}
