//! What is signed stays what it is; what is said is read again as it was.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::ids::{BootId, Generation, Incarnation, RefusalId, SessionId, SlotId};
use crate::tier::Tier;
use crate::token::{Audience, Claims, SigningSecret, TokenError};
use crate::worker::{AgentCommand, Repository, StartError};

fn terms() -> impl Strategy<Value = Terms> {
    let remote = "https://[a-z]{1,9}\\.example/[a-z]{1,9}".prop_map(Repository::Remote);
    let env = prop::collection::btree_map("[A-Z]{1,6}", ".{0,12}", 0..3);
    (
        prop::option::of(remote),
        (prop::collection::vec(".{1,12}", 1..4), env),
        prop::option::of("[0-9a-f]{64}"),
        prop::collection::vec(any::<u16>(), 0..3),
        any::<[u64; 4]>(),
    )
        .prop_map(|(repository, (argv, env), revision, connect, [one, two, three, four])| {
            Terms {
                repository,
                agent: AgentCommand { argv, env },
                policy_revision: revision.clone(),
                skills_revision: revision,
                connect,
                origins: Vec::new(),
                permission_ttl: one,
                kept: two,
                blocked_ttl: three,
                grace: four,
            }
        })
}

prop_compose! {
    fn bind()(
        terms in terms(),
        incarnation in any::<u64>(),
        generation in any::<u64>(),
        expires in 1..u64::MAX,
        canary in prop::option::of(any::<([u8; 4], u16)>()),
    ) -> Bind {
        Bind {
            slot: SlotId::random(),
            session: SessionId::random(),
            incarnation: Incarnation(incarnation),
            generation: Generation(generation),
            expires,
            canary: canary.map(Into::into),
            answered: None,
            terms,
        }
    }
}

proptest! {
    // Signatures take long in a build for tests.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_was_signed_is_read_until_it_expires_and_never_afterwards(bind in bind()) {
        let secret = SigningSecret::generate();
        let signed = secret.sign_bind(&bind);
        let last = bind.expires - 1;
        prop_assert_eq!(secret.public().verify_bind(&signed, last), Ok(bind.clone()));
        prop_assert_eq!(secret.public().verify_bind(&signed, bind.expires), Err(TokenError::Expired));
        prop_assert_eq!(
            SigningSecret::generate().public().verify_bind(&signed, last),
            Err(TokenError::Signature)
        );
    }

    #[test]
    fn one_changed_byte_anywhere_is_refused(bind in bind(), at in any::<prop::sample::Index>(), to in 33u8..127) {
        let secret = SigningSecret::generate();
        let mut changed = secret.sign_bind(&bind).into_bytes();
        let at = at.index(changed.len());
        prop_assume!(changed[at] != to);
        changed[at] = to;
        let changed = String::from_utf8(changed).unwrap();
        prop_assert!(secret.public().verify_bind(&changed, 0).is_err());
    }

    #[test]
    fn a_bind_opens_nothing_and_no_token_binds(bind in bind()) {
        let secret = SigningSecret::generate();
        let key = secret.public();
        let signed = secret.sign_bind(&bind);
        let slots = secret.sign_slot(&SlotClaims { slot: bind.slot.clone(), expires: bind.expires });
        let session = secret.sign(&Claims {
            session: bind.session.clone(),
            incarnation: bind.incarnation,
            generation: bind.generation,
            slot: bind.slot.clone(),
            audience: Audience::Control,
            expires: bind.expires,
        });
        let malformed = TokenError::Malformed;
        prop_assert!(key.verify_slot(&slots, 0).is_ok() && key.verify(&session, 0).is_ok());
        prop_assert_eq!(key.verify(&signed, 0), Err(malformed));
        prop_assert_eq!(key.verify_slot(&signed, 0), Err(malformed));
        prop_assert_eq!(key.verify_worker(&signed, 0), Err(malformed));
        for token in [&slots, &session] {
            prop_assert_eq!(key.verify_bind(token, 0), Err(malformed));
            // The prefix is signed.
            let turned = format!("cb1{}", &token[3..]);
            prop_assert_eq!(key.verify_bind(&turned, 0), Err(TokenError::Signature));
        }
    }

    #[test]
    fn a_repetition_may_hold_longer_and_say_nothing_else(one in bind(), two in bind()) {
        let answered = Some(RefusalId::random());
        let again = Bind { expires: one.expires / 2, canary: two.canary, answered, ..one.clone() };
        prop_assert!(one.says_the_same(&again) && again.says_the_same(&one));
        for other in [
            Bind { slot: two.slot.clone(), ..one.clone() },
            Bind { session: two.session.clone(), ..one.clone() },
            Bind { incarnation: Incarnation(one.incarnation.0 ^ 1), ..one.clone() },
            Bind { generation: Generation(one.generation.0 ^ 1), ..one.clone() },
            Bind { terms: Terms { grace: one.terms.grace ^ 1, ..one.terms.clone() }, ..one.clone() },
        ] {
            prop_assert!(!one.says_the_same(&other));
        }
    }

    #[test]
    fn what_is_bound_runs_what_was_said_and_nothing_of_it_is_the_slots_to_choose(bind in bind()) {
        let config = config();
        let secrets = BTreeMap::from([("KEY".to_owned(), "secret".to_owned())]);
        let content = Content { policy: "policy".to_owned(), secrets };
        let printed = format!("{content:?}");
        prop_assert!(!printed.contains("\"secret\""), "{}", printed);
        let whole = config.bound(bind.clone(), content);
        prop_assert_eq!((&whole.session, whole.generation), (&bind.session, bind.generation));
        prop_assert_eq!((&whole.slot, &whole.agent.argv), (&bind.slot, &bind.terms.agent.argv));
        prop_assert_eq!(&whole.agent.env["KEY"], "secret");
        prop_assert_eq!(whole.volume.to_str(), Some(paths::VOLUME));
        prop_assert!(whole.learn.is_none() && whole.host_uid.is_none() && whole.owner.is_none());
    }
}

fn config() -> SlotConfig {
    serde_json::from_value(written()).unwrap()
}

fn written() -> Value {
    json!({
        "name": SlotId::random(),
        "verify_key": SigningSecret::from_seed(&[7; 32]).public(),
        "tier": "pod",
        "listen": "0.0.0.0:8443",
        "tls": {"chain": paths::CHAIN, "key": paths::KEY},
        "canary": {"refused": {"within": 30}},
        "policy": {"built-in": "developer"},
        "ports": {"first": 20_000, "ranges": 1, "preferred": 0},
    })
}

#[test]
fn a_slots_configuration_says_all_that_matters_and_nothing_unknown() {
    assert!(config().verify_also.is_empty() && !config().plain);
    for needed in ["name", "verify_key", "tier", "listen", "canary", "policy", "ports"] {
        let mut less = written();
        less.as_object_mut().unwrap().remove(needed);
        assert!(serde_json::from_value::<SlotConfig>(less).is_err(), "{needed}");
    }
    let mut more = written();
    more["session"] = json!(SessionId::random());
    assert!(serde_json::from_value::<SlotConfig>(more).is_err());
}

#[test]
fn every_answer_is_read_again_as_it_was_said() {
    let bound = Bound {
        session: SessionId::random(),
        incarnation: Incarnation(1),
        generation: Generation(2),
        boot: BootId::random(),
    };
    let events = [
        BindEvent::Bound(bound.clone()),
        BindEvent::Progress { what: "cloning".to_owned() },
        BindEvent::Refused { target: ([10, 0, 0, 1], 1).into(), refusal: RefusalId::random() },
        BindEvent::Ready { tier: Tier::Pod, worktree: paths::WORK.into() },
        BindEvent::Failed { error: StartError::Shield { message: "open".to_owned() } },
    ];
    for event in events {
        let line = serde_json::to_string(&event).unwrap();
        assert_eq!(serde_json::from_str::<BindEvent>(&line).unwrap(), event, "{line}");
    }
    let Bound { session, incarnation, generation, .. } = bound.clone();
    let refusals = [
        (BindRefusal::Malformed, 400),
        (BindRefusal::Signature, 401),
        (BindRefusal::Expired, 401),
        (BindRefusal::OtherSlot, 403),
        (BindRefusal::BoundOtherwise { session: session.clone(), incarnation, generation }, 409),
        (BindRefusal::OtherTerms, 409),
        (BindRefusal::Stale { incarnation, generation }, 409),
        (BindRefusal::OtherVolume { session }, 409),
        (BindRefusal::NoCanary, 422),
        (BindRefusal::LocalCanary { target: ([127, 0, 0, 1], 1).into() }, 422),
        (
            BindRefusal::OtherCanary {
                target: ([10, 0, 0, 1], 1).into(),
                from: [10, 0, 0, 2].into(),
            },
            422,
        ),
        (BindRefusal::OtherPolicy { found: "0".to_owned() }, 422),
        (BindRefusal::OtherSkills { found: None }, 422),
        (BindRefusal::Content { error: "gone".to_owned() }, 422),
        (BindRefusal::Ending, 503),
    ];
    for (refusal, status) in refusals {
        let body = serde_json::to_string(&refusal).unwrap();
        assert_eq!(serde_json::from_str::<BindRefusal>(&body).unwrap(), refusal, "{body}");
        assert_eq!(refusal.status(), status, "{body}");
    }
    for phase in [SlotPhase::Waiting, SlotPhase::Serving(bound), SlotPhase::Ending] {
        let text = serde_json::to_string(&phase).unwrap();
        assert_eq!(serde_json::from_str::<SlotPhase>(&text).unwrap(), phase, "{text}");
    }
}
