//! A worker that waits in a Pod for its session: bound once, to what was signed for it, and to nothing else.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use casemate_protocol::ids::{Generation, Incarnation, RefusalId, SessionId, SlotId};
use casemate_protocol::policy::DEVELOPER;
use casemate_protocol::slot::{
    Bind, BindEvent, BindRefusal, SlotClaims, SlotConfig, SlotPhase, SlotPolicy,
};
use casemate_protocol::tier::Tier;
use casemate_protocol::token::{Audience, PublicKey, SigningSecret};
use casemate_protocol::worker::{Quiesce, StartError, StartEvent, WorkerStatus};
use casemate_tls::issue::issue;
use nix::sys::signal::Signal;

use crate::client::Client;
use crate::harness::{LONG, call};
use crate::pod_slot::{Hearing, Pod, refusal, send, signal};

/// What a command in the session prints, without the agent's word about its end.
fn shell(client: &mut Client, conversation: &str, command: &str) -> String {
    let said = client.shell(conversation, command);
    said.rsplit_once('[').map_or(said.clone(), |(said, _)| said.to_owned())
}

fn in_seconds(more: u64) -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + more
}

#[test]
fn a_worker_waits_is_bound_serves_and_stops() {
    let Some(pod) = Pod::new() else { return };
    let (mut worker, address) = pod.wait();
    for path in ["/healthz", "/readyz"] {
        assert_eq!(call(address, "GET", path, None, "").0, 200, "{path}");
    }
    let waiting = pod.status(address);
    assert_eq!((&waiting.phase, &waiting.slot), (&SlotPhase::Waiting, &pod.slot()));
    let measured = waiting.enforcement.join("\n");
    assert!(measured.contains("pid namespace of the Pod's own"), "{measured}");
    assert!(measured.contains("network namespace of the Pod's own"), "{measured}");
    let bind = pod.bind();
    assert_eq!(Client::attach(address, &pod.token(&bind, Audience::Attach)).err(), Some(401));

    let events = pod.events(address, &bind);
    let BindEvent::Bound(bound) = &events[0] else { panic!("{events:?}") };
    assert_eq!((&bound.session, bound.generation), (&bind.session, bind.generation));
    assert_eq!(bound.boot, waiting.boot);
    // In the same words, though it holds longer: the same answer.
    let longer = Bind { expires: u64::MAX - 1, ..bind.clone() };
    assert_eq!(pod.events(address, &longer), events);
    assert_eq!(pod.status(address).phase, SlotPhase::Serving(bound.clone()));

    let (mut client, conversation) = pod.serve(address, &bind);
    let said = shell(&mut client, &conversation, "pwd; id -u; git rev-parse --abbrev-ref HEAD");
    let branch = format!("casemate/{}", bind.session);
    assert_eq!(said.lines().collect::<Vec<_>>(), ["/work", "1000", &branch], "{said}");
    // The directory is root's, as a kubelet makes it, and git takes it all the same.
    assert_eq!(fs::metadata(pod.part("work")).unwrap().uid(), 0);
    let said =
        shell(&mut client, &conversation, "echo x >file; git add file; git status --porcelain");
    assert_eq!(said.trim(), "A  file");

    let control = pod.token(&bind, Audience::Control);
    let (code, body) = call(address, "GET", "/v1/status", Some(&control), "");
    assert_eq!(code, 200, "{body}");
    let status: WorkerStatus = serde_json::from_str(&body).unwrap();
    assert_eq!((status.tier, &status.slot), (Tier::Pod, &pod.slot()));
    assert!(status.enforcement.iter().any(|line| line == "network policy: not tried"));
    let (code, body) = call(address, "POST", "/v1/quiesce", Some(&control), "");
    assert_eq!(code, 200);
    let quiesced: Quiesce = serde_json::from_str(&body).unwrap();
    let Quiesce::Quiesced { evidence: Some(evidence) } = quiesced else { panic!("{quiesced:?}") };
    assert_eq!((evidence.dirty, evidence.unpushed), (1, 0));
    assert_eq!(call(address, "GET", "/readyz", None, "").0, 503);
    let stop = r#"{"reason":"idle"}"#;
    assert_eq!(call(address, "POST", "/v1/stop", Some(&control), stop).0, 202);
    assert_eq!(worker.wait().code(), Some(0), "{}", worker.log());
}

/// What the agent's user could read without a wall: the same uid, the same group, in one Pod.
#[test]
fn from_inside_the_session_neither_the_door_nor_anything_of_the_slot_is_to_be_had() {
    let Some(pod) = Pod::new() else { return };
    let (_worker, address) = pod.wait();
    let bind = pod.bind();
    let (mut client, conversation) = pod.serve(address, &bind);
    let mut refused = |command: &str, words: &str| {
        let said =
            shell(&mut client, &conversation, &format!("({command}) 2>&1; echo ={conversation}="));
        assert!(said.contains(words), "{command}: {said}");
    };
    let port = address.port();
    refused(&format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}'"), "Permission denied");
    for file in ["/casemate/slot/config.json", "/casemate/state/audit.ndjson", "/casemate/run/lock"]
    {
        refused(&format!("cat {file}"), "Permission denied");
    }
    refused("ls /casemate/state", "Permission denied");
    refused("echo x >/casemate/state/floors/x", "Permission denied");
    refused("tr '\\0' '\\n' </proc/1/environ", "Permission denied");
    refused("kill -9 1", "not permitted");
    refused("ls /var/lib/kubelet", "No such file");
    refused("echo count=$(env | grep -c POD_UID)", "count=0");
}

#[test]
fn what_was_not_signed_for_this_pod_now_binds_nothing() {
    let Some(pod) = Pod::new() else { return };
    let (worker, address) = pod.wait();
    let bind = pod.bind();
    let signed = pod.secret.sign_bind(&bind);
    let forged = SigningSecret::generate().sign_bind(&bind);
    assert_eq!(refusal(send(address, &forged)), BindRefusal::Signature);
    // One claim of a good one changed, its signature kept.
    let other = pod.secret.sign_bind(&Bind { generation: Generation(9), ..bind.clone() });
    let (_, body) = other.split_once('.').unwrap();
    let (body, _) = body.split_once('.').unwrap();
    let spliced = format!("cb1.{body}.{}", signed.rsplit_once('.').unwrap().1);
    assert_eq!(refusal(send(address, &spliced)), BindRefusal::Signature);
    // Another Pod's, of the same name or not.
    let another = SlotId::of_uid("9f3c1b52-0a77-4f2e-8d31-5c6b7a8f9013").unwrap();
    for slot in [another, pod.config.name.clone()] {
        let theirs = Bind { slot, ..bind.clone() };
        assert_eq!(refusal(pod.ask(address, &theirs)), BindRefusal::OtherSlot);
    }
    let late = Bind { expires: 1, ..bind.clone() };
    assert_eq!(refusal(pod.ask(address, &late)), BindRefusal::Expired);
    let token = pod.token(&bind, Audience::Control);
    for text in ["", "{}", "cb1..", &token, &token.replacen("cm1", "cb1", 1)[..9]] {
        assert_eq!(refusal(send(address, text)), BindRefusal::Malformed, "{text}");
    }
    let turned = token.replacen("cm1", "cb1", 1);
    assert_eq!(refusal(send(address, &turned)), BindRefusal::Signature);
    assert_eq!(call(address, "GET", "/v1/bind", None, "").0, 405);
    // Content that was pinned and is another.
    let mut pinned = bind.clone();
    pinned.terms.policy_revision = Some("0".repeat(64));
    assert!(matches!(refusal(pod.ask(address, &pinned)), BindRefusal::OtherPolicy { .. }));

    // The slot's own token is another Pod's, or of another key.
    let claims = SlotClaims { slot: SlotId::random(), expires: u64::MAX };
    for token in [pod.secret.sign_slot(&claims), SigningSecret::generate().sign_slot(&claims)] {
        assert_eq!(call(address, "GET", "/v1/status", Some(&token), "").0, 401);
    }
    assert_eq!(call(address, "GET", "/v1/status", None, "").0, 401);
    // After all that it still waits, and the volume knows of nobody.
    assert_eq!(pod.status(address).phase, SlotPhase::Waiting);
    assert_eq!(fs::read_dir(pod.part("state/floors")).unwrap().count(), 0);
    let (mut client, conversation) = pod.serve(address, &bind);
    assert!(shell(&mut client, &conversation, "echo here").contains("here"));
    drop(worker);
}

#[test]
fn a_bind_that_has_expired_is_not_even_repeated() {
    let Some(pod) = Pod::new() else { return };
    let (_worker, address) = pod.wait();
    let bind = pod.bind();
    assert_eq!(pod.ask(address, &bind).0, 200);
    let soon = Bind { expires: in_seconds(5), ..bind.clone() };
    let signed = pod.secret.sign_bind(&soon);
    assert_eq!(send(address, &signed).0, 200);
    while in_seconds(0) < soon.expires {
        thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(refusal(send(address, &signed)), BindRefusal::Expired);
    // Its session goes on.
    let token = pod.token(&bind, Audience::Attach);
    assert!(Client::attach(address, &token).is_ok());
}

#[test]
fn of_many_binds_at_once_one_is_taken_and_the_rest_are_told_which() {
    let Some(pod) = Pod::new() else { return };
    let (_worker, address) = pod.wait();
    let binds: Vec<Bind> = (0..8).map(|_| pod.bind()).collect();
    let answers: Vec<(u16, String)> = thread::scope(|scope| {
        // Each twice: the same claims get the same answer.
        let both = binds.iter().chain(&binds);
        let all: Vec<_> = both.map(|bind| scope.spawn(|| pod.ask(address, bind))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let (taken, rest): (Vec<_>, Vec<_>) = answers.into_iter().partition(|(code, _)| *code == 200);
    assert_eq!(taken.len(), 2, "{taken:?}");
    assert_eq!(taken[0], taken[1]);
    let SlotPhase::Serving(bound) = pod.status(address).phase else { panic!("it serves") };
    for refused in rest {
        let refused = refusal(refused);
        let BindRefusal::BoundOtherwise { session, .. } = refused else { panic!("{refused}") };
        assert_eq!(session, bound.session);
    }
    let ours = binds.into_iter().find(|bind| bind.session == bound.session).unwrap();
    let mut terms = ours.clone();
    terms.terms.grace = 9;
    assert_eq!(refusal(pod.ask(address, &terms)), BindRefusal::OtherTerms);
    let later = Bind { generation: Generation(2), ..ours };
    assert!(matches!(refusal(pod.ask(address, &later)), BindRefusal::BoundOtherwise { .. }));
}

/// A container that is started again is another worker: what bound the last one does not bind this one.
#[test]
fn a_restart_takes_a_higher_generation_of_the_same_session_and_nothing_else() {
    let Some(pod) = Pod::new() else { return };
    let (worker, address) = pod.wait();
    let boot = pod.status(address).boot;
    let bind = Bind { generation: Generation(3), ..pod.bind() };
    let (mut client, conversation) = pod.serve(address, &bind);
    shell(&mut client, &conversation, "echo kept >/work/file");
    let token = pod.token(&bind, Audience::Attach);
    // Killed, in the midst of it.
    signal(&worker, Signal::SIGKILL);
    drop((worker, client));

    let (_worker, address) = pod.wait();
    assert_ne!(pod.status(address).boot, boot);
    let stale = BindRefusal::Stale { incarnation: Incarnation(1), generation: Generation(3) };
    assert_eq!(refusal(pod.ask(address, &bind)), stale);
    let older = Bind { generation: Generation(2), ..bind.clone() };
    assert_eq!(refusal(pod.ask(address, &older)), stale);
    let another = Bind { session: SessionId::random(), generation: Generation(9), ..bind.clone() };
    let session = bind.session.clone();
    assert_eq!(refusal(pod.ask(address, &another)), BindRefusal::OtherVolume { session });
    assert_eq!(Client::attach(address, &token).err(), Some(401), "the last worker's token");

    let next = Bind { generation: Generation(4), ..bind.clone() };
    let (mut client, conversation) = pod.serve(address, &next);
    assert_eq!(shell(&mut client, &conversation, "cat /work/file").trim(), "kept");
    assert_eq!(Client::attach(address, &token).err(), Some(401), "the last generation's token");
}

/// A target on the machine's side that listens, and a bind that names it.
fn with_canary(pod: &Pod) -> (TcpListener, Bind) {
    let target = pod.network.as_ref().unwrap().listener();
    target.set_nonblocking(true).unwrap();
    let bind = Bind { canary: Some(target.local_addr().unwrap()), ..pod.bind() };
    (target, bind)
}

/// The refusal that is to be answered; all of it before is passed over.
fn refused(heard: &mut Hearing) -> RefusalId {
    let found = heard.find_map(|event| match event {
        BindEvent::Refused { refusal, .. } => Some(refusal),
        BindEvent::Ready { .. } | BindEvent::Failed { .. } => panic!("{event:?}"),
        _ => None,
    });
    found.expect("a connection is refused")
}

/// Of the session's there is neither a HOME nor a process.
fn nothing_runs(pod: &Pod, address: SocketAddr) {
    assert_eq!(fs::read_dir(pod.part("home")).unwrap().count(), 0);
    let phase = pod.status(address).phase;
    assert!(matches!(phase, SlotPhase::Waiting | SlotPhase::Starting(_)), "{phase:?}");
}

#[test]
fn nothing_runs_before_a_connection_is_refused_whose_target_answers_others() {
    let Some(pod) = Pod::apart(30) else { return };
    let (_worker, address) = pod.wait();
    let (target, bind) = with_canary(&pod);
    let mut heard = pod.hear(address, &bind);
    let begun = Instant::now();
    let mut came = 0;
    while came < 5 {
        came += u32::from(target.accept().is_ok());
        assert!(begun.elapsed() < LONG, "{came} tries came");
        nothing_runs(&pod, address);
    }
    pod.network.as_ref().unwrap().close(target.local_addr().unwrap().port());
    let refusal = refused(&mut heard);
    // Whoever says nothing of it, or means another, has not seen the target answer.
    for answered in [None, Some(RefusalId::random())] {
        let again = Bind { answered, ..bind.clone() };
        assert_eq!(refused(&mut pod.hear(address, &again)), refusal);
        thread::sleep(Duration::from_millis(200));
        nothing_runs(&pod, address);
    }
    let answered = Bind { answered: Some(refusal), ..bind.clone() };
    let events: Vec<BindEvent> = pod.hear(address, &answered).collect();
    assert!(matches!(events.last(), Some(BindEvent::Ready { .. })), "{events:?}");
    assert!(
        matches!(heard.last(), Some(BindEvent::Ready { .. })),
        "the first one hears it as well"
    );
    let control = pod.token(&bind, Audience::Control);
    let (_, body) = call(address, "GET", "/v1/status", Some(&control), "");
    let status: WorkerStatus = serde_json::from_str(&body).unwrap();
    let line = status.enforcement.iter().find(|line| line.starts_with("network policy in force"));
    let line = line.unwrap_or_else(|| panic!("{body}"));
    assert!(line.contains("EACCES") && !line.contains("after 0 that passed"), "{line}");
}

/// What is gone refuses too: nobody can have seen it answer.
#[test]
fn a_canary_that_is_gone_is_no_policy() {
    let Some(pod) = Pod::apart(2) else { return };
    let (mut worker, address) = pod.wait();
    let (target, bind) = with_canary(&pod);
    drop(target);
    let mut heard = pod.hear(address, &bind);
    refused(&mut heard);
    let Some(BindEvent::Failed { error: StartError::Shield { message } }) = heard.last() else {
        panic!("it does not start");
    };
    assert!(message.contains("what is gone refuses as well"), "{message}");
    assert_eq!(worker.wait().code(), Some(70));
    assert_eq!(fs::read_dir(pod.part("home")).unwrap().count(), 0);
}

#[test]
fn a_canary_is_a_port_of_whoever_binds() {
    let Some(pod) = Pod::apart(30) else { return };
    let (_worker, address) = pod.wait();
    assert_eq!(refusal(pod.ask(address, &pod.bind())), BindRefusal::NoCanary);
    let own = pod.network.as_ref().unwrap().inside;
    for here in ["127.0.0.1:9".to_owned(), "[::1]:9".to_owned(), format!("{own}:9")] {
        let target = here.parse().unwrap();
        let bind = Bind { canary: Some(target), ..pod.bind() };
        assert_eq!(refusal(pod.ask(address, &bind)), BindRefusal::LocalCanary { target });
    }
    // No way leads there at all (RFC 5737), so each connection is refused.
    let bind = Bind { canary: Some(([203, 0, 113, 7], 9).into()), ..pod.bind() };
    assert!(matches!(refusal(pod.ask(address, &bind)), BindRefusal::OtherCanary { .. }));
    assert_eq!(pod.status(address).phase, SlotPhase::Waiting);
}

#[test]
fn a_pod_that_stays_open_serves_nobody_and_ends() {
    let Some(pod) = Pod::apart(1) else { return };
    let (mut worker, address) = pod.wait();
    let (_target, bind) = with_canary(&pod);
    let events = pod.events(address, &bind);
    let Some(BindEvent::Failed { error: StartError::Shield { message } }) = events.last() else {
        panic!("{events:?}");
    };
    assert!(message.contains("NetworkPolicy is not in force"), "{message}");
    assert_eq!(worker.wait().code(), Some(70));
    assert_eq!(fs::read_dir(pod.part("home")).unwrap().count(), 0);
}

/// What a Pod is said to be is looked at: the node's network, and what is the node's, make it none.
#[test]
fn what_is_no_pod_of_its_own_waits_for_nobody() {
    let Some(mut pod) = Pod::new() else { return };
    pod.node = "127.0.0.1".to_owned();
    let mut worker = pod.start();
    let event = worker.outcome();
    let StartEvent::Failed { error: StartError::Tier { wanted: Tier::Pod, message } } = event
    else {
        panic!("{event:?}");
    };
    assert!(message.contains("hostNetwork"), "{message}");
    assert_eq!(worker.wait().code(), Some(78));

    pod.node = "198.51.100.7".to_owned();
    pod.extra = "var/lib/kubelet".to_owned();
    let mut worker = pod.start();
    let event = worker.outcome();
    let StartEvent::Failed { error: StartError::Tier { message, .. } } = event else {
        panic!("{event:?}");
    };
    assert!(message.contains("/var/lib/kubelet is in the Pod"), "{message}");
    assert_eq!(worker.wait().code(), Some(78));

    pod.extra.clear();
    pod.uid = "not-a-uid".to_owned();
    let mut worker = pod.start();
    let event = worker.outcome();
    assert!(matches!(event, StartEvent::Failed { error: StartError::Config { .. } }), "{event:?}");
    assert_eq!(worker.wait().code(), Some(64));
}

/// It fails before it is ready, and its last line on stdout is what a kubelet shows as the termination message.
#[test]
fn a_slot_whose_content_cannot_hold_waits_for_nobody() {
    let Some(mut pod) = Pod::new() else { return };
    let rule = |path: &str| {
        format!("{DEVELOPER}\n[[path]]\npath = \"{path}\"\naccess = [\"read\"]\nreason = \"r\"\n")
    };
    for (name, text) in [
        ("whole", DEVELOPER.to_owned()),
        ("grants", rule("/casemate/state")),
        ("broken", format!("unknown = 1\n{DEVELOPER}")),
        // Only where a wall is built does it show.
        ("wall", rule("/nowhere") + "required = true\n"),
    ] {
        fs::write(pod.at("slot").join(name), text).unwrap();
    }
    let whole = pod.config.clone();
    let file = |name: &str, revision: Option<String>| SlotPolicy::File {
        path: format!("/casemate/slot/{name}").into(),
        revision,
    };
    let nowhere = || Some("/nowhere".into());
    let mut cases = vec![
        ("home_template", SlotConfig { home_template: nowhere(), ..whole.clone() }),
        ("/nowhere", SlotConfig { skills: nowhere(), ..whole.clone() }),
        ("programs", SlotConfig { programs: vec!["/nowhere".into()], ..whole.clone() }),
        (
            "/nowhere",
            SlotConfig { secrets: [("KEY".into(), "/nowhere".into())].into(), ..whole.clone() },
        ),
    ];
    for (words, policy) in [
        ("/casemate/state", file("grants", None)),
        ("unknown", file("broken", None)),
        ("/nowhere", file("wall", None)),
        ("is wanted", file("whole", Some("0".repeat(64)))),
        ("/casemate/slot/absent", file("absent", None)),
        ("no policy of the name", SlotPolicy::BuiltIn("lenient".into())),
    ] {
        cases.push((words, SlotConfig { policy, ..whole.clone() }));
    }
    for (words, config) in cases {
        pod.config = config;
        let mut worker = pod.start();
        let event = worker.outcome();
        let StartEvent::Failed { error } = &event else { panic!("{words}: {event:?}") };
        assert!(error.to_string().contains(words), "{words}: {error}");
        assert_eq!(worker.wait().code(), Some(error.exit_code().into()), "{error}");
    }
}

/// What is mounted is read again when the bind comes: that is what is compared, used and reported.
#[test]
fn a_bind_is_held_against_what_is_mounted_then() {
    let Some(mut pod) = Pod::new() else { return };
    let file = pod.at("slot").join("policy");
    fs::write(&file, DEVELOPER).unwrap();
    pod.config.policy = SlotPolicy::File { path: "/casemate/slot/policy".into(), revision: None };
    pod.config.skills = Some("/skills".into());
    turn_skills(&pod, "..1", "one");
    let (_worker, address) = pod.wait();
    let waiting = pod.status(address);
    let first = waiting.skills_revision.clone().unwrap();
    fs::write(&file, format!("{DEVELOPER}# changed\n")).unwrap();
    turn_skills(&pod, "..2", "two");

    let mut pinned = pod.bind();
    pinned.terms.policy_revision = Some(waiting.policy_revision.clone());
    let refused = refusal(pod.ask(address, &pinned));
    let BindRefusal::OtherPolicy { found: policy } = refused else { panic!("{refused}") };
    assert_ne!(policy, waiting.policy_revision);
    pinned.terms.policy_revision = Some(policy.clone());
    pinned.terms.skills_revision = Some(first.clone());
    let refused = refusal(pod.ask(address, &pinned));
    let BindRefusal::OtherSkills { found: Some(second) } = refused else { panic!("{refused}") };
    assert_ne!(second, first);
    fs::write(&file, "version = 2").unwrap();
    let refused = refusal(pod.ask(address, &pinned));
    assert!(matches!(refused, BindRefusal::Content { .. }), "{refused}");
    assert_eq!(pod.status(address).phase, SlotPhase::Waiting);
    fs::write(&file, format!("{DEVELOPER}# changed\n")).unwrap();

    pinned.terms.skills_revision = Some(second.clone());
    let (mut client, conversation) = pod.serve(address, &pinned);
    let control = pod.token(&pinned, Audience::Control);
    let status = || -> WorkerStatus {
        let (_, body) = call(address, "GET", "/v1/status", Some(&control), "");
        serde_json::from_str(&body).unwrap()
    };
    assert_eq!(
        (status().policy_revision, status().skills_revision),
        (policy, Some(second.clone()))
    );
    let mut read = || shell(&mut client, &conversation, "cat /skills/a.md").trim().to_owned();
    assert_eq!(read(), "two");
    // And under the session's hands.
    turn_skills(&pod, "..3", "three");
    assert_eq!(read(), "three");
    let third = status().skills_revision.unwrap();
    assert!(third != second && third != first);
    turn_skills(&pod, "..4", "two");
    assert_eq!((read().as_str(), status().skills_revision), ("two", Some(second)));
}

/// As a kubelet updates a ConfigMap's volume.
fn turn_skills(pod: &Pod, moment: &str, text: &str) {
    let root = pod.at("skills");
    fs::create_dir(root.join(moment)).unwrap();
    fs::write(root.join(moment).join("a.md"), text).unwrap();
    symlink(moment, root.join("..tmp")).unwrap();
    fs::rename(root.join("..tmp"), root.join("..data")).unwrap();
    let link = root.join("a.md");
    if fs::symlink_metadata(&link).is_err() {
        symlink("..data/a.md", link).unwrap();
    }
}

/// The slot's certificate is a Secret's files; its SAN is the slot's name.
#[test]
fn the_door_shows_the_slots_certificate() {
    let Some(mut pod) = Pod::apart(30) else { return };
    pod.config.plain = false;
    let (certificate, pin) = issue(pod.config.name.as_str()).unwrap();
    pod.give_certificate(&certificate);
    let (_worker, address) = pod.wait();
    let bind = pod.bind();
    let token = format!("Bearer {}", pod.token(&bind, Audience::Attach));
    // Nothing is bound yet: the handshake is through, the token is not.
    let attached = Client::attach_to(address, Some(&pin), &[("authorization", &token)]);
    assert_eq!(attached.err(), Some(401));
}

/// Whoever may call can neither push everything else out of the audit log, nor fill the volume with it.
#[test]
fn a_flood_of_refused_binds_and_of_keys_leaves_few_lines() {
    let Some(pod) = Pod::new() else { return };
    let (_worker, address) = pod.wait();
    let begun = Instant::now();
    let forged = SigningSecret::generate().sign_bind(&pod.bind());
    for _ in 0..60 {
        assert_eq!(refusal(send(address, &forged)), BindRefusal::Signature);
    }
    let (own, token) = (pod.secret.public(), pod.own_token());
    let post = |keys: &[PublicKey]| {
        let keys = serde_json::json!({ "accept": keys }).to_string();
        call(address, "POST", "/v1/keys", Some(&token), &keys).0
    };
    // What is in force already is no change.
    assert!((0..60).all(|_| post(&[own]) == 204));
    let other = SigningSecret::generate().public();
    let answers: Vec<u16> = (0..60).map(|turn| post(&[own, other][..1 + turn % 2])).collect();
    let changed = answers.iter().filter(|code| **code == 204).count();
    assert!(answers.contains(&429) && changed < 60, "{answers:?}");
    let log = fs::read_to_string(pod.part("state/audit.ndjson")).unwrap();
    let lines = |code: &str| log.lines().filter(|line| line.contains(code)).count();
    // Ten a minute each.
    let minutes = usize::try_from(begun.elapsed().as_secs() / 60).unwrap();
    for code in ["keys.in_force", "call.refused"] {
        assert!((1..=10 * (minutes + 1)).contains(&lines(code)), "{code}: {}", lines(code));
    }
}

#[test]
fn the_kubelets_term_ends_it_in_order_whether_it_waits_or_serves() {
    let Some(pod) = Pod::new() else { return };
    let (mut worker, _) = pod.wait();
    signal(&worker, Signal::SIGTERM);
    assert_eq!(worker.wait().code(), Some(0), "{}", worker.log());

    let (mut worker, address) = pod.wait();
    let (mut client, conversation) = pod.serve(address, &pod.bind());
    // Deaf to TERM, in a session of its own.
    shell(&mut client, &conversation, "setsid sh -c 'trap \"\" TERM; sleep 300' >/dev/null 2>&1 &");
    let begun = Instant::now();
    signal(&worker, Signal::SIGTERM);
    assert_eq!(worker.wait().code(), Some(0), "{}", worker.log());
    assert!(begun.elapsed() < Duration::from_secs(2 + 10), "within its grace and the Pod's");
}

/// The holder of the slot's own token ends it and changes keys; a session's opens neither before there is one.
#[test]
fn keys_rotate_while_it_waits() {
    let Some(pod) = Pod::new() else { return };
    let (mut worker, address) = pod.wait();
    let new = SigningSecret::generate();
    let keys = serde_json::json!({"accept": [new.public()]}).to_string();
    assert_eq!(call(address, "POST", "/v1/keys", Some(&pod.own_token()), &keys).0, 204);
    assert_eq!(refusal(pod.ask(address, &pod.bind())), BindRefusal::Signature);
    let claims = SlotClaims { slot: pod.slot(), expires: u64::MAX };
    let token = new.sign_slot(&claims);
    let stop = r#"{"reason":"shutdown"}"#;
    assert_eq!(call(address, "POST", "/v1/stop", Some(&pod.own_token()), stop).0, 401);
    assert_eq!(call(address, "POST", "/v1/stop", Some(&token), stop).0, 202);
    assert_eq!(worker.wait().code(), Some(0));
}
