//! Sessions of one user in one worker (`sharing = "user"`), with the real supervisor: who gets in, what ends what, what comes back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails there")]

mod house;

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use casemate_protocol::api::{Allocate, ApiError, Attached, ErrorKind, Phase, SessionView};
use casemate_protocol::end::EndReason;
use casemate_protocol::ids::SlotId;
use casemate_protocol::sharing::{Refusal, SharedStatus, WorkerClaims};
use casemate_protocol::tier::Tier;
use casemate_protocol::token::{Audience, Claims, SigningSecret};
use casemate_protocol::worker::{StartError, WorkerStatus};
use house::{House, alive, eventually, request, signal, supervisor, workers_of};

/// A house whose profile `shared` says so; `more`: further lines of it.
fn sharing(tier: &'static str, more: &str) -> House {
    let house = House::in_tier(supervisor(), tier);
    house.profile("shared", &format!("sharing = 'user'\n{more}"));
    house
}

fn asked(thread: &str, tenant: &str) -> Allocate {
    let mut body = request(&format!("{tenant}-{thread}"), thread, "");
    body.key.tenant = tenant.into();
    body.intent.profile = "shared".into();
    body.intent.env = [("SECRET".to_owned(), format!("of-{thread}"))].into();
    body
}

fn pid(view: &SessionView) -> u32 {
    view.worker.as_ref().unwrap().pid
}

fn work(view: &SessionView) -> PathBuf {
    view.worker.as_ref().unwrap().worktree.clone()
}

/// A worker's answer to a call with this token.
fn call(address: SocketAddr, method: &str, path: &str, token: &str, body: &str) -> (u16, String) {
    let (token, host) = (format!("Bearer {token}"), address.to_string());
    let headers = [("host", host.as_str()), ("authorization", token.as_str())];
    house::http(address, method, path, &headers, body).unwrap()
}

fn serves(attached: &Attached) -> bool {
    let (code, text) = call(attached.address, "GET", "/v1/status", &attached.token, "");
    let status = serde_json::from_str::<WorkerStatus>(&text);
    code == 200 && status.is_ok_and(|status| status.session == attached.session.id)
}

/// What the allocator signs with: whoever has this is the allocator.
fn secret(house: &House) -> SigningSecret {
    let seed = std::fs::read(house.home().join("keys/signing.seed")).unwrap();
    SigningSecret::from_seed(&seed.try_into().unwrap())
}

fn own(house: &House, slot: &SlotId, user: &str) -> String {
    let user = user.parse().unwrap();
    secret(house).sign_worker(&WorkerClaims { slot: slot.clone(), user, expires: u64::MAX })
}

/// Leaves something unpushed, as the session's owner would.
fn scribble(view: &SessionView) -> PathBuf {
    let file = work(view).join("note");
    std::fs::write(&file, "unsaved\n").unwrap();
    let owner = work(view).metadata().unwrap();
    std::os::unix::fs::chown(&file, Some(owner.uid()), Some(owner.gid())).unwrap();
    file
}

fn phase(house: &House, view: &SessionView, wanted: Phase) -> SessionView {
    eventually(&format!("{wanted:?}"), || {
        let view = house.show(&view.id).unwrap();
        (view.phase == wanted).then_some(view)
    })
}

#[test]
fn one_users_sessions_share_a_worker_and_another_user_never_gets_into_it() {
    for tier in ["namespace", "domain"] {
        let house = sharing(tier, "");
        let one = house.allocate(&asked("one", "ann")).unwrap();
        let two = house.allocate(&asked("two", "ann")).unwrap();
        let eves = house.allocate(&asked("three", "eve")).unwrap();
        let alone = {
            let mut body = asked("four", "ann");
            body.intent.profile = "default".into();
            house.allocate(&body).unwrap()
        };
        let (a, b, c, d) = (&one.session, &two.session, &eves.session, &alone.session);
        assert_eq!((&a.slot, pid(a), one.address), (&b.slot, pid(b), two.address), "{tier}");
        assert!(a.slot != c.slot && pid(a) != pid(c) && one.address != eves.address, "{tier}");
        // A profile that does not share gives the same user a worker of its own.
        assert!(a.slot != d.slot && pid(a) != pid(d), "{tier}");
        for attached in [&one, &two, &eves, &alone] {
            assert!(serves(attached), "{tier} {}", attached.session.key);
        }
        assert_eq!(a.worker.as_ref().unwrap().tier, Tier::Domain);
        assert_eq!(d.worker.as_ref().unwrap().tier.to_string(), tier);
        // Own trees at places that no id tells; one user id a slot where there are several.
        assert!(work(a) != work(b) && work(a).exists() && work(b).exists());
        assert!(!work(a).to_string_lossy().contains(&a.id.as_str()[2..]));
        let owner = |view: &SessionView| work(view).metadata().unwrap().uid();
        assert_eq!(owner(a), owner(b));
        assert_eq!(owner(a) != owner(c), nix::unistd::geteuid().is_root());

        // What eve was given opens nothing of ann's: neither a session nor the worker.
        for path in ["/v1/status", "/v1/patch"] {
            let refused = call(one.address, "GET", path, &eves.token, "");
            assert_eq!(refused, (401, "token is for another slot\n".into()), "{tier} {path}");
        }
        // Nor would a worker's own token in her name, for ann's slot: the slot is bound to ann.
        let forged = own(&house, &a.slot, "eve");
        for (method, path) in [("GET", "/v1/sessions"), ("POST", "/v1/sessions")] {
            let refused = call(one.address, method, path, &forged, "{}");
            assert_eq!(refused, (401, "token is for another user\n".into()), "{tier}");
        }
        let claims = Claims {
            session: c.id.clone(),
            incarnation: c.incarnation,
            generation: c.generation,
            slot: a.slot.clone(),
            audience: Audience::Exec,
            expires: u64::MAX,
        };
        let refused = call(one.address, "GET", "/v1/exec", &secret(&house).sign(&claims), "");
        assert_eq!(refused, (401, "token is for another session\n".into()), "{tier}");
        // And what ann's own worker is asked for in eve's name is refused by kind.
        let token = own(&house, &a.slot, "ann");
        let session = session_for("eve");
        let (code, text) = call(one.address, "POST", "/v1/sessions", &token, &session);
        assert_eq!((code, serde_json::from_str(&text).ok()), (403, Some(Refusal::OtherUser)));
        let (_, text) = call(one.address, "GET", "/v1/status", &token, "");
        let status: SharedStatus = serde_json::from_str(&text).unwrap();
        let mut hosted: Vec<_> = status.sessions.iter().map(|one| one.session.clone()).collect();
        let mut wanted = vec![a.id.clone(), b.id.clone()];
        hosted.sort();
        wanted.sort();
        assert_eq!((hosted, status.user.as_str()), (wanted, "ann"), "{tier}");
        // One session's token opens the other no more than the worker.
        let refused = call(one.address, "GET", "/v1/sessions", &one.token, "");
        assert_eq!(refused, (401, "token is for another audience\n".into()));
    }
}

fn session_for(user: &str) -> String {
    format!(
        r#"{{"user":"{user}","session":"{}","incarnation":1,"generation":1,"tier":"domain","repository":null,
        "home_template":null,"skills":null,"programs":[],"policy":"","agent":{{"argv":["sh"],"env":{{}}}},
        "preferred_ports":0,"connect":[],"permission_ttl":1,"grace":1}}"#,
        casemate_protocol::ids::SessionId::random()
    )
}

#[test]
fn what_ends_a_session_leaves_the_others_and_the_worker_until_the_last_is_gone() {
    let house = sharing("domain", "");
    let one = house.allocate(&asked("one", "ann")).unwrap();
    let two = house.allocate(&asked("two", "ann")).unwrap();
    let (a, worker) = (&one.session, pid(&one.session));
    let note = scribble(a);
    // A stop, and the next message: the same worker, the next generation, what was there.
    assert_eq!(house.stop(&a.id, false).unwrap().phase, Phase::Asleep);
    assert!(alive(worker) && serves(&two));
    assert_eq!(call(one.address, "GET", "/v1/status", &one.token, "").0, 401);
    let again = house.resume(&a.id).unwrap();
    assert_eq!((pid(&again.session), again.session.generation.0), (worker, 2));
    assert!(serves(&again) && note.exists() && work(&again.session).join("note") == note);
    assert_eq!(call(one.address, "GET", "/v1/status", &one.token, "").0, 401);
    // A close retains what is unpushed, and a discard takes it and nothing else.
    let closed = house.close(&a.id, false, false).unwrap();
    assert_eq!(closed.phase, Phase::Ended);
    assert!(note.exists() && alive(worker) && serves(&two));
    house.close(&a.id, true, false).unwrap();
    assert!(!note.parent().unwrap().exists() && work(&two.session).exists());
    assert!(alive(worker) && serves(&two));
    // A start that fails is undone, beside the others.
    let mut wrong = asked("three", "ann");
    wrong.intent.repository = Some("http://127.0.0.1:1/nothing.git".into());
    let error = house.allocate(&wrong).unwrap_err();
    assert!(matches!(error.start, Some(StartError::Repository { .. })), "{error:?}");
    assert_eq!(house.list().len(), 2);
    assert!(alive(worker) && serves(&two));
    let entries = |name: &str| std::fs::read_dir(house.slot(a).join(name)).unwrap().count();
    assert_eq!(entries("sessions"), 1);
    // The last one takes the slot along.
    house.close(&two.session.id, false, false).unwrap();
    assert!(house.slots().is_empty() && !alive(worker));
    let next = house.allocate(&asked("five", "ann")).unwrap();
    assert!(serves(&next) && pid(&next.session) != worker);
}

#[test]
fn a_dead_worker_is_replaced_and_its_sessions_go_on() {
    let house = sharing("domain", "");
    let one = house.allocate(&asked("one", "ann")).unwrap().session;
    let two = house.allocate(&asked("two", "ann")).unwrap().session;
    let note = scribble(&one);
    let dead = pid(&one);
    signal(dead, "KILL");
    for session in [&one, &two] {
        let view = phase(&house, session, Phase::Asleep);
        let end = view.last_end.unwrap();
        assert!(end.reason == EndReason::Failed && end.detail.contains("signal: 9"), "{end:?}");
    }
    assert!(workers_of(&house.slot(&one)).is_empty());
    // Both at once: one worker is started for both.
    let (a, b) = std::thread::scope(|scope| {
        let a = scope.spawn(|| house.resume(&one.id).unwrap());
        let b = scope.spawn(|| house.allocate(&asked("two", "ann")).unwrap());
        (a.join().unwrap(), b.join().unwrap())
    });
    assert_eq!(pid(&a.session), pid(&b.session));
    assert!(pid(&a.session) != dead && serves(&a) && serves(&b));
    assert_eq!((a.session.generation.0, b.session.generation.0), (2, 2));
    assert!(note.exists() && work(&a.session).join("note") == note);
    // Nobody of the generation that the dead one served is let in by the new one.
    let claims = Claims {
        session: one.id.clone(),
        incarnation: one.incarnation,
        generation: one.generation,
        slot: one.slot.clone(),
        audience: Audience::Control,
        expires: u64::MAX,
    };
    let stale = call(a.address, "GET", "/v1/status", &secret(&house).sign(&claims), "");
    assert_eq!(stale, (401, "token is for another generation\n".into()));
}

#[test]
fn an_idle_session_stops_then_its_idle_worker_and_the_next_message_starts_both() {
    let house = sharing("domain", "idle_ttl = '1s'\n");
    let one = house.allocate(&asked("one", "ann")).unwrap().session;
    scribble(&one);
    // Unpushed work: it sleeps instead of being closed as unused.
    let view = phase(&house, &one, Phase::Asleep);
    assert_eq!(view.last_end.unwrap().reason, EndReason::Idle);
    eventually("the worker has lingered", || (!alive(pid(&one))).then_some(()));
    let again = house.resume(&one.id).unwrap();
    assert!(serves(&again) && work(&again.session).join("note").exists());
    // One that nothing is in goes, and with it the slot and the worker.
    let two = house.allocate(&asked("two", "eve")).unwrap().session;
    let view = phase(&house, &two, Phase::Ended);
    assert_eq!(view.last_end.unwrap().reason, EndReason::Unused);
    eventually("the slot is gone", || (!house.slot(&two).exists()).then_some(()));
    assert!(!alive(pid(&two)));
}

#[test]
fn what_a_profile_retains_stays_in_the_slot_and_the_next_session_goes_beside_it() {
    let house = sharing("domain", "close = { retain = '7d' }\nidle_ttl = '2s'\n");
    let one = house.allocate(&asked("one", "ann")).unwrap().session;
    let trees = work(&one);
    let closed = house.close(&one.id, false, false).unwrap();
    assert_eq!(
        (closed.phase, closed.next.unwrap().action.as_str()),
        (Phase::Ended, "delete storage")
    );
    assert!(trees.exists() && alive(pid(&one)));
    eventually("the worker has lingered", || (!alive(pid(&one))).then_some(()));
    assert!(trees.exists());
    // The same user's next session finds its place there, and what goes is the one that is meant.
    let next = house.allocate(&asked("two", "ann")).unwrap();
    assert!(next.session.slot == one.slot && serves(&next) && work(&next.session) != trees);
    house.close(&one.id, true, false).unwrap();
    assert!(!trees.exists() && serves(&next) && work(&next.session).exists());
}

#[test]
fn an_allocator_that_is_started_again_finds_the_worker_and_each_of_its_sessions() {
    let mut house = sharing("domain", "");
    let one = house.allocate(&asked("one", "ann")).unwrap();
    let two = house.allocate(&asked("two", "ann")).unwrap();
    let three = house.allocate(&asked("three", "ann")).unwrap();
    house.stop(&three.session.id, false).unwrap();
    house.kill_up();
    assert!(alive(pid(&one.session)));
    house.up();
    let again = house.allocate(&asked("one", "ann")).unwrap();
    assert_eq!((again.address, again.session.generation.0), (one.address, 1));
    assert!(serves(&again) && serves(&two));
    assert_eq!(house.show(&three.session.id).unwrap().phase, Phase::Asleep);
    let woken = house.resume(&three.session.id).unwrap();
    assert_eq!((pid(&woken.session), woken.session.generation.0), (pid(&one.session), 2));
    house.stop(&one.session.id, false).unwrap();
    assert!(serves(&two) && serves(&woken));
    // With the worker gone too, all of them sleep, and none is lost.
    house.kill_up();
    signal(pid(&two.session), "KILL");
    eventually("gone", || workers_of(&house.slot(&two.session)).is_empty().then_some(()));
    house.up();
    for session in [&one, &two, &woken] {
        assert_eq!(house.show(&session.session.id).unwrap().phase, Phase::Asleep);
        assert!(serves(&house.resume(&session.session.id).unwrap()));
    }
}

#[test]
fn a_session_that_ends_by_itself_is_seen_while_its_worker_goes_on() {
    let house = sharing("domain", "idle_ttl = '20s'\n");
    let one = house.allocate(&asked("one", "ann")).unwrap();
    let two = house.allocate(&asked("two", "ann")).unwrap();
    // As its agent's end would: by the session's own door, past the allocator.
    let claims = Claims {
        session: one.session.id.clone(),
        incarnation: one.session.incarnation,
        generation: one.session.generation,
        slot: one.session.slot.clone(),
        audience: Audience::Control,
        expires: u64::MAX,
    };
    let token = secret(&house).sign(&claims);
    assert_eq!(call(one.address, "POST", "/v1/stop", &token, r#"{"reason":"failed"}"#).0, 202);
    let view = phase(&house, &one.session, Phase::Asleep);
    assert_eq!(view.last_end.unwrap().reason, EndReason::Failed);
    assert!(serves(&two));
    assert!(serves(&house.resume(&one.session.id).unwrap()));
}

#[test]
fn sharing_where_a_better_tier_is_wanted_is_refused_by_kind() {
    let house = sharing("namespace", "");
    let policy = house.dir.path().join("policy.toml");
    let known = casemate_protocol::policy::DEVELOPER;
    let demanding = known.replacen("tier = \"domain\"", "tier = \"namespace\"", 1);
    assert_ne!(demanding, known);
    std::fs::write(&policy, demanding).unwrap();
    let by_policy = format!("policy = '{}'\n", policy.display());
    let refused = |error: ApiError, word: &str| {
        assert_eq!(error.kind, ErrorKind::Unavailable, "{error}");
        let wanted = matches!(error.start, Some(StartError::Tier { wanted: Tier::Namespace, .. }));
        assert!(wanted, "{error:?}");
        assert!(error.message.contains(word) && error.message.contains("sharing"), "{error}");
    };
    for (more, word) in
        [("tier = 'namespace'\n", "profile `shared`"), (by_policy.as_str(), "policy.toml")]
    {
        house.profile("shared", &format!("sharing = 'user'\n{more}"));
        refused(house.allocate(&asked("one", "ann")).unwrap_err(), word);
        // Each for himself gets it.
        house.profile("shared", more);
        let alone = house.allocate(&asked(word, "ann")).unwrap().session;
        assert_eq!(alone.worker.as_ref().unwrap().tier, Tier::Namespace);
        house.close(&alone.id, true, false).unwrap();
    }
    assert!(house.slots().is_empty());
    // Whose worker it would be has to be a name.
    house.profile("shared", "sharing = 'user'\n");
    let error = house.allocate(&asked("one", &"x".repeat(300))).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
}
