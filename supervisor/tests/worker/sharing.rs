//! Sessions of one user come and go in one worker: taken in, found again, refused, ended.

use std::fs;

use casemate_protocol::ids::{Generation, SlotId};
use casemate_protocol::policy::Policy;
use casemate_protocol::sharing::{Refusal, SessionConfig, SharedStatus, WorkerClaims};
use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;
use casemate_protocol::worker::{
    Activity, AgentState, Repository, StartError, StartEvent, WorkerStatus,
};

use crate::client::{Client, Closed};
use crate::harness::{Who, call, eventually};
use crate::many::Many;

fn refusal((status, body): (u16, String)) -> Refusal {
    let refusal: Refusal = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{body}"));
    assert_eq!(status, refusal.status());
    refusal
}

#[test]
fn sessions_come_and_go_without_a_restart_and_each_has_its_own() {
    for who in [Who::Own, Who::User] {
        let many = Many::new(who);
        let (worker, address) = many.serve();
        assert_eq!(many.list(address), []);
        let mut a = many.hosted_as(address, with_secret(&many, "of-a"));
        let mut b = many.hosted_as(address, with_secret(&many, "of-b"));
        assert_ne!(a.worktree, b.worktree);
        // Own HOME, clone, scratch, environment, credentials, ports, limits.
        let look = "echo $HOME $TMPDIR $PWD $SECRET $CASEMATE_PORTS; git rev-parse HEAD --abbrev-ref HEAD; ulimit -n";
        let (of_a, of_b) = (a.shell(look), b.shell(look));
        for (mine, said, other) in [(&a, &of_a, &of_b), (&b, &of_b, &of_a)] {
            let branch = format!("casemate/{}", mine.config.session);
            assert!(said.contains(&branch) && !other.contains(&branch), "{said} {other}");
            let place = mine.place().display().to_string();
            assert_eq!(said.matches(&place).count(), 3, "{said}");
            assert!(!other.contains(&place));
        }
        assert!(of_a.contains("of-a") && of_b.contains("of-b"), "{of_a} {of_b}");
        let ports =
            |said: &str| said.lines().next().unwrap().rsplit(' ').next().unwrap().to_owned();
        assert_ne!(ports(&of_a), ports(&of_b));

        let list = many.list(address);
        assert_eq!(list.len(), 2);
        for summary in &list {
            assert_eq!((summary.tier, summary.attachments), (Some(Tier::Domain), 1));
            assert!(matches!(summary.activity, Some(Activity::Idle { .. })), "{summary:?}");
            assert!(matches!(summary.agent, AgentState::Running { .. }), "{summary:?}");
        }
        let (status, ended) = many.end(address, &a.config.session, "storage=keep");
        assert_eq!(status, 200, "{ended}");
        assert_eq!(a.client.receive(), Err(Closed::With(1001, "the session was ended".into())));
        assert_eq!(many.list(address).len(), 1);
        assert!(b.shell("echo still here").contains("still here"));
        let gone = Client::attach(address, &many.token(&a.config, Audience::Attach)).err();
        assert_eq!(gone, Some(401));

        // What was kept is there for the next generation, and for no earlier one.
        fs::write(a.worktree.join("kept"), "of-a").unwrap();
        let stale = refusal(many.ask(address, &a.config));
        assert!(matches!(stale, Refusal::Stale { .. }), "{stale}");
        let next = SessionConfig { generation: Generation(2), ..a.config.clone() };
        let mut again = many.hosted_as(address, next);
        assert_eq!(again.worktree, a.worktree);
        assert!(again.shell("cat kept").contains("of-a"));

        // And gone when that is asked for, with nothing of another session.
        let (status, ended) = many.end(address, &a.config.session, "storage=delete&generation=2");
        assert_eq!(status, 200, "{ended}");
        assert!(!a.place().exists() && b.place().exists());
        let state = many.config.volume.join("state");
        assert!(!state.join(a.config.session.as_str()).exists());
        assert!(state.join(b.config.session.as_str()).exists());
        assert_eq!(many.count("sessions"), 1);
        let none = refusal(many.end(address, &a.config.session, "storage=delete"));
        assert_eq!(none, Refusal::NoSession { session: a.config.session.clone() });
        assert!(b.shell("echo still here").contains("still here"));
        worker.stop();
    }
}

fn with_secret(many: &Many, value: &str) -> SessionConfig {
    let mut config = many.session();
    config.agent.env.insert("SECRET".into(), value.into());
    config
}

#[test]
fn the_same_request_is_the_same_session_and_what_is_not_meant_is_refused_by_kind() {
    let many = Many::new(Who::Own);
    let (worker, address) = many.serve();
    let asked = many.session();
    let first = many.ask(address, &asked);
    assert_eq!(first.0, 200);
    assert!(first.1.lines().count() > 2, "progress comes before the end: {}", first.1);
    assert_eq!(many.ask(address, &asked), first);
    assert_eq!(many.list(address).len(), 1);

    let other = SessionConfig { grace: 9, ..asked.clone() };
    let conflict = refusal(many.ask(address, &other));
    assert_eq!(conflict, Refusal::OtherIntent { session: asked.session.clone() });
    let wrong = refusal(many.end(address, &asked.session, "storage=keep&generation=2"));
    assert!(matches!(wrong, Refusal::OtherGeneration { .. }), "{wrong}");
    let other = SessionConfig { user: "tenant/eve".parse().unwrap(), ..many.session() };
    assert_eq!(refusal(many.ask(address, &other)), Refusal::OtherUser);
    let other = SessionConfig { tier: Tier::Namespace, ..many.session() };
    let tier = refusal(many.ask(address, &other));
    assert_eq!(tier, Refusal::Tier { wanted: Tier::Namespace });
    let none = refusal(many.end(address, &many.session().session, "storage=keep"));
    assert!(matches!(none, Refusal::NoSession { .. }));
    for how in ["", "storage=burn", "storage=keep&force=1"] {
        assert_eq!(many.end(address, &asked.session, how).0, 400, "{how}");
    }
    assert_eq!(many.list(address).len(), 1);
    worker.stop();
}

/// Two that ask at once get one session, and both hear how it goes.
#[test]
fn a_request_that_comes_twice_at_once_starts_one_session() {
    let many = Many::new(Who::Own);
    let (worker, address) = many.serve();
    let asked = many.session();
    let said: Vec<_> = std::thread::scope(|scope| {
        let both: Vec<_> = (0..2).map(|_| scope.spawn(|| many.ask(address, &asked))).collect();
        both.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(said[0], said[1]);
    assert!(said[0].1.contains(r#""event":"ready""#), "{said:?}");
    assert_eq!((many.list(address).len(), many.count("sessions")), (1, 1));
    worker.stop();
}

#[test]
fn a_session_that_cannot_begin_leaves_nothing_and_may_be_asked_for_again() {
    let many = Many::new(Who::Own);
    let (worker, address) = many.serve();
    let mut asked = many.session();
    let good = asked.agent.argv.clone();
    asked.agent.argv = vec!["no-such-agent".into()];
    let event = many.begin(address, &asked);
    assert!(
        matches!(event, StartEvent::Failed { error: StartError::AgentNotFound { .. } }),
        "{event:?}"
    );
    assert_eq!(many.list(address), []);
    asked.agent.argv = good;
    assert!(matches!(many.begin(address, &asked), StartEvent::Ready { .. }));
    worker.stop();
}

/// Whose token it is decides what it opens, and nothing else does.
#[test]
fn a_token_opens_its_own_session_or_the_worker_and_never_the_other() {
    let many = Many::new(Who::Own);
    let (worker, address) = many.serve();
    let a = many.hosted(address);
    let b = many.hosted(address);
    let status = |token: &str| call(address, "GET", "/v1/status", Some(token), "");
    for hosted in [&a, &b] {
        let (code, body) = status(&many.token(&hosted.config, Audience::Attach));
        assert_eq!(code, 200);
        let status: WorkerStatus = serde_json::from_str(&body).unwrap();
        assert_eq!(status.session, hosted.config.session);
        // What the kernel counts by user it counts for all of them together, and that is said.
        let counted = "counted by the kernel for all that this user runs, so any of it can use them up: processes, ";
        assert!(status.enforcement.iter().any(|line| line.starts_with(counted)), "{status:?}");
    }
    let (code, body) = status(&many.own_token());
    assert_eq!(code, 200);
    let shared: SharedStatus = serde_json::from_str(&body).unwrap();
    assert_eq!((shared.sessions.len(), shared.user), (2, many.config.user.clone()));
    assert!(!shared.enforcement.is_empty());

    // A session's tokens and the worker's control.
    for audience in [Audience::Attach, Audience::Control] {
        let token = many.token(&a.config, audience);
        for (method, path) in [
            ("GET", "/v1/sessions".to_owned()),
            ("POST", "/v1/sessions".to_owned()),
            ("DELETE", format!("/v1/sessions/{}?storage=delete", b.config.session)),
        ] {
            let (code, said) = call(address, method, &path, Some(&token), "");
            assert_eq!((code, said.as_str()), (401, "token is for another audience\n"), "{path}");
        }
    }
    // A's control token stops A at most: its claims say which session is meant, no path does.
    let later = SessionConfig { generation: Generation(2), ..b.config.clone() };
    assert_eq!(status(&many.token(&later, Audience::Control)).0, 401);

    // The worker's own token and a session's endpoints; another worker's, another user's, an old one.
    assert_eq!(Client::attach(address, &many.own_token()).err(), Some(404));
    for path in ["/v1/quiesce", "/v1/patch"] {
        assert_eq!(call(address, "POST", path, Some(&many.own_token()), "").0, 404, "{path}");
    }
    for (claims, said) in [
        (WorkerClaims { slot: SlotId::random(), ..many.claims() }, "token is for another slot"),
        (
            WorkerClaims { user: "tenant/eve".parse().unwrap(), ..many.claims() },
            "token is for another user",
        ),
        (WorkerClaims { expires: 1, ..many.claims() }, "token has expired"),
    ] {
        let (code, body) = call(address, "GET", "/v1/sessions", Some(&many.sign(&claims)), "");
        assert!(code == 401 && body.starts_with(said), "{code} {body}");
    }
    assert_eq!(call(address, "GET", "/v1/sessions", None, "").0, 401);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(call(address, "GET", path, None, "").0, 200, "{path}");
    }
    worker.stop();
}

#[test]
fn a_slot_never_serves_two_users() {
    let mut many = Many::new(Who::Own);
    let (worker, address) = many.serve();
    drop(many.hosted(address));
    worker.stop();
    many.config.user = "tenant/eve".parse().unwrap();
    let mut worker = many.start();
    let event = worker.outcome();
    let StartEvent::Failed { error } = event else { panic!("{event:?}") };
    assert!(error.to_string().contains("another user"), "{error}");
    assert_eq!(worker.wait().code(), Some(73));
}

/// Whatever a request names, nothing of another session's is copied, cloned or granted.
#[test]
fn a_session_that_names_anothers_places_is_refused() {
    let many = Many::new(Who::Own);
    let (worker, address) = many.serve();
    let b = many.hosted(address);
    let refused = |change: &dyn Fn(&mut SessionConfig)| {
        let mut asked = many.session();
        change(&mut asked);
        let event = many.begin(address, &asked);
        let StartEvent::Failed { error: error @ StartError::Policy { .. } } = event else {
            panic!("{event:?}");
        };
        // For what it would grant, not for how it is written.
        let volume = many.config.volume.display().to_string();
        assert!(error.to_string().contains(&volume), "{error}");
    };
    let place = b.place();
    refused(&|asked| asked.home_template = Some(place.join("home")));
    refused(&|asked| asked.skills = Some(place.join("home")));
    refused(&|asked| asked.repository = Some(Repository::Local(place.join("work/.git"))));
    refused(&|asked| asked.programs.push(place.join("work")));
    refused(&|asked| asked.programs.push(many.config.volume.clone()));
    let state = many.config.volume.join("state").join(b.config.session.as_str());
    for path in [place.join("work"), place.join("scratch"), state] {
        refused(&|asked| {
            asked.policy += &format!(
                "\n[[path]]\npath = \"{}\"\naccess = [\"read\"]\nreason = \"another's\"\n",
                path.display()
            );
        });
    }
    assert_eq!(many.list(address).len(), 1);
    worker.stop();
}

#[test]
fn a_worker_without_a_session_ends_when_it_has_lingered() {
    let mut many = Many::new(Who::Own);
    many.config.linger = Some(1);
    let (mut worker, address) = many.serve();
    let a = many.hosted(address);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(many.list(address).len(), 1);
    assert_eq!(many.end(address, &a.config.session, "storage=keep").0, 200);
    assert_eq!(worker.wait().code(), Some(0));

    let (mut worker, address) = many.serve();
    let stop = r#"{"reason":"shutdown"}"#;
    let token = many.own_token();
    assert_eq!(call(address, "POST", "/v1/stop", Some(&token), stop).0, 202);
    assert_eq!(worker.wait().code(), Some(0));
}

#[test]
fn metrics_are_sums_that_do_not_grow_with_sessions_nor_fall_with_them() {
    let many = Many::new(Who::Own);
    let (worker, address) = many.serve();
    let metrics = || call(address, "GET", "/metrics", Some(&many.own_token()), "").1;
    let value = |name: &str| -> u64 {
        let text = metrics();
        let line = text.lines().find(|line| line.starts_with(&format!("casemate_{name} ")));
        line.unwrap_or_else(|| panic!("{text}")).rsplit(' ').next().unwrap().parse().unwrap()
    };
    let lines = metrics().lines().count();
    let a = many.hosted(address);
    let _b = many.hosted(address);
    assert_eq!((value("sessions"), value("attachments_total")), (2, 2));
    // One for the policy that both have.
    assert_eq!(metrics().lines().count(), lines + 1);
    let mut other = many.session();
    other.policy.push_str("# another\n");
    let event = many.begin(address, &other);
    assert!(matches!(event, StartEvent::Ready { .. }), "{event:?}");
    let listed = many.list(address);
    let revision = |config: &SessionConfig| {
        let found = listed.iter().find(|summary| summary.session == config.session);
        found.and_then(|summary| summary.policy_revision.clone()).unwrap()
    };
    let two = [revision(&a.config), revision(&other)];
    assert_ne!(two[0], two[1]);
    for (config, expected) in [(&a.config, &two[0]), (&other, &two[1])] {
        assert_eq!(Policy::parse(&config.policy).unwrap().revision, *expected);
        let line = format!("casemate_policy_info{{revision=\"{expected}\"}} 1\n");
        assert_eq!(metrics().matches(&line).count(), 1, "{}", metrics());
    }
    assert_eq!(metrics().lines().count(), lines + 2);
    assert_eq!(many.end(address, &other.session, "storage=keep").0, 200);
    eventually("its policy goes with it", || !metrics().contains(&two[1]));
    assert!(!metrics().contains(a.config.session.as_str()));
    assert_eq!(many.end(address, &a.config.session, "storage=keep").0, 200);
    assert_eq!((value("sessions"), value("attachments_total")), (1, 2));
    eventually("idle", || value("sessions_busy") == 0);
    worker.stop();
}
