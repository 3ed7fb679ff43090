//! From the agent's own shell: the supervisor, its state and other slots are out of reach.

use std::fs;

use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;
use casemate_protocol::worker::{StartError, StartEvent};

use crate::client::Client;
use crate::harness::{ALL, Slot, Who, call, eventually, example, lives};

#[test]
fn the_agent_can_neither_read_nor_signal_nor_limit_the_supervisor() {
    for (tier, who) in ALL {
        let slot = Slot::new(tier, who);
        let neighbour = slot.root.path().join("slots/neighbour/secret");
        fs::create_dir_all(neighbour.parent().unwrap()).unwrap();
        fs::write(&neighbour, "sentinel").unwrap();
        let (worker, address) = slot.serve();
        let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
        client.initialize();
        let session = client.new_session();
        let pids: Vec<i32> = if tier == Tier::Namespace {
            vec![1]
        } else {
            std::iter::once(worker.pid().as_raw()).chain(worker.descendants()).collect()
        };
        let agent = match slot.status(address).agent {
            casemate_protocol::worker::AgentState::Running { pid } => pid,
            other => panic!("{other:?}"),
        };
        let supervisor: Vec<i32> = pids.into_iter().filter(|pid| *pid != agent).collect();
        for pid in &supervisor {
            let tried = client.shell(
                &session,
                &format!(
                    "kill -9 {pid} && echo KILLED; prlimit --pid {pid} --cpu=1 && echo LIMITED; \
                     cat /proc/{pid}/environ /proc/{pid}/maps && echo READ; ls /proc/{pid}/fd && echo LISTED; true"
                ),
            );
            for word in ["KILLED", "LIMITED", "READ", "LISTED"] {
                assert!(!tried.contains(word), "{tier} {who:?} pid {pid}: {tried}");
            }
        }
        let places = format!(
            "cat {neighbour}; ls {slots}; ls {state} /casemate/state; cat {lock}; echo x > {neighbour}; true",
            neighbour = neighbour.display(),
            slots = slot.root.path().join("slots").display(),
            state = slot.config.volume.join("state").display(),
            lock = slot.config.volume.join("run/lock").display(),
        );
        let tried = client.shell(&session, &places);
        for word in ["sentinel", "neighbour\n", "provisioned.json", "saved.json"] {
            assert!(!tried.contains(word), "{tier} {who:?}: {tried}");
        }
        assert_eq!(fs::read_to_string(&neighbour).unwrap(), "sentinel");
        assert!(lives(worker.pid().as_raw()));
        worker.stop();
    }
}

#[test]
fn a_descriptor_of_the_supervisor_reaches_no_agent() {
    for (tier, who) in ALL {
        let slot = Slot::new(tier, who);
        let (worker, address) = slot.serve();
        let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
        client.initialize();
        let session = client.new_session();
        let open = client.shell(&session, "ls -l /proc/$PPID/fd");
        let open: Vec<&str> = open.lines().filter(|line| line.contains("->")).collect();
        assert!(open.len() >= 3, "{open:?}");
        assert!(
            !open.iter().any(|line| line.contains("lock") || line.contains("socket")),
            "{open:?}"
        );
        worker.stop();
    }
}

/// The filters that a process wears, as its `status` counts them (proc_pid_status(5)), and its name.
pub(crate) fn filters(pid: &str) -> (u32, String) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
    (field("Seccomp_filters:").parse().unwrap(), field("Name:").to_owned())
}

#[test]
fn supervisor_and_launcher_wear_filters_of_their_own_and_the_spawner_none() {
    for (tier, who) in ALL {
        let slot = Slot::new(tier, who);
        let (worker, address) = slot.serve();
        let around = filters("self").0;
        let launchers = usize::from(tier == Tier::Namespace);
        let ours = || {
            let all = std::iter::once(worker.pid().as_raw()).chain(worker.descendants());
            all.filter(|pid| lives(*pid)).collect::<Vec<_>>()
        };
        // The probe's process may still wait to be reaped.
        eventually("launcher, supervisor and spawner alone", || ours().len() == launchers + 2);
        for pid in ours() {
            let (filters, name) = filters(&pid.to_string());
            let own = u32::from(name != "casemate-spawn");
            assert_eq!(filters, around + own, "{tier} {who:?}: {name}");
        }
        let enforcement = slot.status(address).enforcement;
        assert!(
            enforcement.iter().any(|line| line.starts_with("supervisor filter: ")),
            "{enforcement:#?}"
        );
        let metrics = call(address, "GET", "/metrics", Some(&slot.token(Audience::Control)), "").1;
        assert!(metrics.contains("\ncasemate_own_calls_refused_total 0\n"), "{metrics}");
        worker.stop();
    }
}

/// The strict policy asks for a namespace, gets one, and its agent writes and commits, but runs nothing of its own.
#[test]
fn a_strict_worker_works_in_a_namespace_and_does_not_start_without() {
    let mut slot = Slot::new(Tier::Domain, Who::Own);
    slot.config.policy = casemate_protocol::policy::STRICT.to_owned();
    let (error, status) = slot.fails();
    assert!(matches!(error, StartError::Tier { wanted: Tier::Namespace, .. }), "{error:?}");
    assert_eq!(status.code(), Some(78));

    let mut slot = Slot::new(Tier::Namespace, Who::Own);
    slot.config.policy = casemate_protocol::policy::STRICT.to_owned();
    let (worker, address) = slot.serve();
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    client.initialize();
    let session = client.new_session();
    let script = "printf '#!/bin/sh\necho ran\n' > own; chmod +x own; ./own || echo refused $?; sh own; \
                  git -c user.name=n -c user.email=e commit -q --allow-empty -m one && echo committed";
    let said = client.shell(&session, script);
    assert!(
        said.contains("refused 126") && said.contains("ran") && said.contains("committed"),
        "{said}"
    );
    worker.stop();
}

/// What the walls cannot hold starts nothing, and what they hold is said as it is.
#[test]
fn a_policy_with_hosts_starts_no_worker_and_one_without_says_how_open_it_is() {
    let hosts = "mode = \"allow-list\"";
    let mut slot = Slot::new(Tier::Domain, Who::Own);
    slot.config.policy = casemate_protocol::policy::DEVELOPER.replace("mode = \"open\"", hosts);
    let (error, status) = slot.fails();
    let StartError::Policy { message } = error else { panic!("{error:?}") };
    assert!(message.contains("egress mode allow-list is not enforced by this build"), "{message}");
    assert_eq!(status.code(), Some(65));

    let mut slot = Slot::new(Tier::Domain, Who::Own);
    slot.config.policy = casemate_protocol::policy::AUDIT.to_owned();
    let (worker, address) = slot.serve();
    let status = slot.status(address);
    for part in ["egress open: every address at tcp ports 53, 80, 443", "log: the kernel is asked"]
    {
        assert!(status.enforcement.iter().any(|line| line.starts_with(part)), "{status:?}");
    }
    worker.stop();
}

/// The one reason for which it could not put it on that a test can make: somebody's filter around it.
#[test]
fn a_launcher_without_its_filter_is_a_refusal_and_leaves_nothing() {
    for who in [Who::Own, Who::User] {
        let slot = Slot::new(Tier::Namespace, who);
        let by = example("without-launchers-filter").display().to_string();
        let mut worker = slot.start_by(vec![by]);
        let event = worker.outcome();
        let StartEvent::Failed { error: error @ StartError::Shield { .. } } = event else {
            panic!("{event:?}\n{}", worker.log());
        };
        assert!(error.to_string().contains("the launcher's filter cannot be put on"), "{error}");
        let status = worker.wait();
        assert_eq!((status.code(), worker.descendants()), (Some(70), vec![]), "{}", worker.log());
        assert!(worker.log().contains("the launcher's filter"), "{}", worker.log());
        // Nothing holds the slot.
        slot.serve().0.stop();
    }
}
