//! Whether a bind is taken. Pure; its signature and expiry have been looked at.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use casemate_protocol::ids::{SessionId, SlotId};
use casemate_protocol::slot::{Bind, BindRefusal};

use crate::shared::floor::{self, Floor};

/// What the slot is.
#[derive(Debug, Clone, Copy)]
pub struct Own<'a> {
    /// By the UID of its Pod.
    pub slot: &'a SlotId,
    /// Its policy's revision.
    pub policy: &'a str,
    /// Its skills'.
    pub skills: Option<&'a str>,
    /// It wants a canary.
    pub canary: bool,
    /// Its Pod's address.
    pub address: IpAddr,
}

/// How far the worker is.
#[derive(Debug, Clone, Copy)]
pub enum Standing<'a> {
    /// It waits; these sessions' files are on the volume, of these generations at most.
    Waiting(&'a BTreeMap<SessionId, Floor>),
    /// It took this bind.
    Bound(&'a Bind),
    /// It ends.
    Ending,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Take it.
    Take,
    /// It was taken before, and said the same.
    Same,
}

/// Decides. `from`: whence it was sent.
///
/// # Errors
/// [`BindRefusal`].
pub fn decide(
    own: &Own<'_>,
    asked: &Bind,
    from: IpAddr,
    standing: Standing<'_>,
) -> Result<Decision, BindRefusal> {
    if asked.slot != *own.slot {
        return Err(BindRefusal::OtherSlot);
    }
    let floors = match standing {
        Standing::Ending => return Err(BindRefusal::Ending),
        Standing::Bound(bound) if bound.says_the_same(asked) => return Ok(Decision::Same),
        Standing::Bound(bound) if bound.whose() == asked.whose() => {
            return Err(BindRefusal::OtherTerms);
        }
        Standing::Bound(bound) => {
            return Err(BindRefusal::BoundOtherwise {
                session: bound.session.clone(),
                incarnation: bound.incarnation,
                generation: bound.generation,
            });
        }
        Standing::Waiting(floors) => floors,
    };
    if let Some(session) = floors.keys().find(|session| **session != asked.session) {
        return Err(BindRefusal::OtherVolume { session: session.clone() });
    }
    let newest = floors.get(&asked.session).copied();
    if let Some((incarnation, generation)) =
        floor::above(newest, (asked.incarnation, asked.generation))
    {
        return Err(BindRefusal::Stale { incarnation, generation });
    }
    if own.canary {
        shows_something(asked.canary.ok_or(BindRefusal::NoCanary)?, from, own.address)?;
    }
    let terms = &asked.terms;
    if terms.policy_revision.as_ref().is_some_and(|wanted| wanted != own.policy) {
        return Err(BindRefusal::OtherPolicy { found: own.policy.to_owned() });
    }
    if terms.skills_revision.is_some() && terms.skills_revision.as_deref() != own.skills {
        return Err(BindRefusal::OtherSkills { found: own.skills.map(str::to_owned) });
    }
    Ok(Decision::Take)
}

/// Whether a refusal there would be a policy's: the target must be elsewhere, and where packets are seen to come from.
fn shows_something(target: SocketAddr, from: IpAddr, own: IpAddr) -> Result<(), BindRefusal> {
    let address = target.ip().to_canonical();
    if address.is_loopback() || address.is_unspecified() || address == own.to_canonical() {
        return Err(BindRefusal::LocalCanary { target });
    }
    if address != from.to_canonical() {
        return Err(BindRefusal::OtherCanary { target, from });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use casemate_protocol::ids::{Generation, Incarnation};
    use casemate_protocol::slot::Terms;
    use casemate_protocol::worker::AgentCommand;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    const POLICY: &str = "policy";
    const FROM: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

    fn bind(slot: &SlotId) -> Bind {
        Bind {
            slot: slot.clone(),
            session: SessionId::random(),
            incarnation: Incarnation(2),
            generation: Generation(5),
            expires: 100,
            canary: Some((FROM, 1).into()),
            answered: None,
            terms: Terms {
                repository: None,
                agent: AgentCommand { argv: vec!["agent".into()], env: BTreeMap::new() },
                policy_revision: Some(POLICY.to_owned()),
                skills_revision: None,
                connect: Vec::new(),
                origins: Vec::new(),
                permission_ttl: 1,
                kept: 1,
                blocked_ttl: 1,
                grace: 1,
            },
        }
    }

    fn own(slot: &SlotId) -> Own<'_> {
        Own { slot, policy: POLICY, skills: None, canary: true, address: [10, 0, 0, 2].into() }
    }

    fn decide(
        own: &Own<'_>,
        asked: &Bind,
        standing: Standing<'_>,
    ) -> Result<Decision, BindRefusal> {
        super::decide(own, asked, FROM, standing)
    }

    #[test]
    fn one_bind_is_taken_and_each_refusal_says_why() {
        let slot = SlotId::random();
        let asked = bind(&slot);
        let own = own(&slot);
        let none = BTreeMap::new();
        let waiting = Standing::Waiting(&none);
        assert_eq!(decide(&own, &asked, waiting), Ok(Decision::Take));
        let other = Bind { slot: SlotId::random(), ..asked.clone() };
        assert_eq!(decide(&own, &other, waiting), Err(BindRefusal::OtherSlot));
        let bare = Bind { canary: None, ..asked.clone() };
        assert_eq!(decide(&own, &bare, waiting), Err(BindRefusal::NoCanary));
        assert_eq!(decide(&Own { canary: false, ..own }, &bare, waiting), Ok(Decision::Take));
        let mut else_policy = asked.clone();
        else_policy.terms.policy_revision = Some("another".to_owned());
        let found = POLICY.to_owned();
        assert_eq!(decide(&own, &else_policy, waiting), Err(BindRefusal::OtherPolicy { found }));
        let mut skilled = asked.clone();
        skilled.terms.skills_revision = Some("skills".to_owned());
        assert_eq!(decide(&own, &skilled, waiting), Err(BindRefusal::OtherSkills { found: None }));
        assert_eq!(decide(&own, &asked, Standing::Ending), Err(BindRefusal::Ending));

        let bound = Standing::Bound(&asked);
        let longer = Bind { expires: 200, ..asked.clone() };
        assert_eq!(decide(&own, &longer, bound), Ok(Decision::Same));
        let mut terms = asked.clone();
        terms.terms.grace = 9;
        assert_eq!(decide(&own, &terms, bound), Err(BindRefusal::OtherTerms));
        for another in [
            Bind { session: SessionId::random(), ..asked.clone() },
            Bind { generation: Generation(6), ..asked.clone() },
            Bind { incarnation: Incarnation(3), ..asked.clone() },
        ] {
            let refused = decide(&own, &another, bound);
            assert!(matches!(refused, Err(BindRefusal::BoundOtherwise { .. })), "{refused:?}");
        }
    }

    #[test]
    fn a_canary_is_elsewhere_and_where_the_bind_comes_from() {
        let slot = SlotId::random();
        let own = own(&slot);
        let none = BTreeMap::new();
        let take = |target: &str, from: &str| {
            let asked = Bind { canary: Some(target.parse().unwrap()), ..bind(&slot) };
            super::decide(&own, &asked, from.parse().unwrap(), Standing::Waiting(&none))
        };
        assert_eq!(take("10.0.0.1:8080", "10.0.0.1"), Ok(Decision::Take));
        // A socket of both versions of the protocol tells it so.
        assert_eq!(take("10.0.0.1:8080", "::ffff:10.0.0.1"), Ok(Decision::Take));
        assert_eq!(take("[fd00::1]:8080", "fd00::1"), Ok(Decision::Take));
        for here in ["127.0.0.1:1", "127.3.2.1:1", "0.0.0.0:1", "10.0.0.2:1", "[::1]:1", "[::]:1"] {
            let address = here.parse::<SocketAddr>().unwrap().ip().to_string();
            for from in [address.as_str(), "10.0.0.1"] {
                let target = here.parse().unwrap();
                assert_eq!(take(here, from), Err(BindRefusal::LocalCanary { target }), "{from}");
            }
        }
        let mapped = "[::ffff:127.0.0.1]:1";
        let target = mapped.parse().unwrap();
        assert_eq!(take(mapped, "10.0.0.1"), Err(BindRefusal::LocalCanary { target }));
        for other in ["10.0.0.3:8080", "255.255.255.255:8080", "198.51.100.7:8080"] {
            let refused = take(other, "10.0.0.1").unwrap_err();
            assert!(matches!(refused, BindRefusal::OtherCanary { .. }), "{other}: {refused}");
        }
    }

    #[test]
    fn a_volume_is_one_sessions() {
        let slot = SlotId::random();
        let asked = bind(&slot);
        let session = SessionId::random();
        let floors = BTreeMap::from([(session.clone(), (Incarnation(1), Generation(1)))]);
        let refused = decide(&own(&slot), &asked, Standing::Waiting(&floors));
        assert_eq!(refused, Err(BindRefusal::OtherVolume { session }));
    }

    proptest! {
        #[test]
        fn a_volume_is_taken_by_later_generations_alone(
            floor in (0..4u64, 0..4u64), asked in (0..4u64, 0..4u64)
        ) {
            let slot = SlotId::random();
            let numbers = |(incarnation, generation)| (Incarnation(incarnation), Generation(generation));
            let (incarnation, generation) = numbers(asked);
            let asking = Bind { incarnation, generation, ..bind(&slot) };
            let floors = BTreeMap::from([(asking.session.clone(), numbers(floor))]);
            let decided = decide(&own(&slot), &asking, Standing::Waiting(&floors));
            prop_assert_eq!(decided.is_ok(), asked > floor);
        }
    }
}
