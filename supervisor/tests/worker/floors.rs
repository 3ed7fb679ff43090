//! A worker that is started again lets in nobody of a generation that it has left behind.

use std::fs;

use casemate_protocol::ids::{Generation, Incarnation};
use casemate_protocol::sharing::{Refusal, SessionConfig};
use casemate_protocol::token::Audience;
use casemate_protocol::worker::{StartError, StartEvent};

use crate::client::Client;
use crate::exec_client::Exec;
use crate::harness::{ALL, Slot, Who, call, eventually};
use crate::many::Many;

fn at(session: &SessionConfig, incarnation: u64, generation: u64) -> SessionConfig {
    SessionConfig {
        incarnation: Incarnation(incarnation),
        generation: Generation(generation),
        ..session.clone()
    }
}

fn stale(many: &Many, address: std::net::SocketAddr, asked: &SessionConfig) -> bool {
    let (status, body) = many.ask(address, asked);
    status == 409 && matches!(serde_json::from_str(&body), Ok(Refusal::Stale { .. }))
}

#[test]
fn a_killed_worker_comes_back_and_an_older_generations_token_opens_nothing() {
    for who in [Who::Own, Who::User] {
        let many = Many::new(who);
        let (mut worker, address) = many.serve();
        let one = many.session();
        let two = at(&one, 1, 2);
        drop(many.hosted_as(address, one.clone()));
        assert_eq!(many.end(address, &one.session, "storage=keep").0, 200);
        drop(many.hosted_as(address, two.clone()));
        // One whose storage is gone: its tokens are as old as ever.
        let gone = many.session();
        drop(many.hosted_as(address, gone.clone()));
        assert_eq!(many.end(address, &gone.session, "storage=delete").0, 200);
        // SIGKILL, with no step more.
        worker.child.kill().unwrap();
        worker.wait();

        let (worker, address) = many.serve();
        let opened = |session: &SessionConfig| {
            let attach = many.token(session, Audience::Attach);
            let control = many.token(session, Audience::Control);
            let exec = many.token(session, Audience::Exec);
            (
                Client::attach(address, &attach).err(),
                Some(call(address, "GET", "/v1/status", Some(&control), "").0),
                Exec::connect(address, &exec).err(),
            )
        };
        let nothing = (Some(401), Some(401), Some(401));
        assert_eq!(opened(&one), nothing, "{who:?}");
        // Nor can the generation be had again that they are for, nor the one that ran when it was killed.
        for asked in [&one, &two, &at(&one, 0, 9), &gone] {
            let newest = (asked.incarnation, asked.generation);
            assert!(stale(&many, address, asked), "{who:?} {newest:?}");
        }
        let three = at(&one, 1, 3);
        drop(many.hosted_as(address, three.clone()));
        assert_eq!((opened(&one), opened(&two)), (nothing, nothing), "{who:?}");
        assert_eq!(
            call(address, "GET", "/v1/status", Some(&many.token(&three, Audience::Control)), "").0,
            200
        );
        worker.stop();
    }
}

/// A generation that never served has let nobody in: it is not used up, whoever restarts in between.
#[test]
fn a_generation_that_never_came_to_serve_may_be_asked_for_again_and_damage_is_a_refusal() {
    let many = Many::new(Who::User);
    let (worker, address) = many.serve();
    let mut asked = many.session();
    let good = std::mem::replace(&mut asked.agent.argv, vec!["no-such-agent".into()]);
    let event = many.begin(address, &asked);
    assert!(matches!(event, StartEvent::Failed { error: StartError::AgentNotFound { .. } }));
    worker.stop();
    let (worker, address) = many.serve();
    asked.agent.argv = good;
    let event = many.begin(address, &asked);
    assert!(matches!(event, StartEvent::Ready { .. }), "{event:?}\n{}", worker.log());
    worker.stop();
    let floor = many.config.volume.join("state/floors").join(asked.session.as_str());
    assert_eq!(fs::read_to_string(&floor).unwrap(), "1 1");
    fs::write(&floor, "").unwrap();
    let mut worker = many.start();
    let event = worker.outcome();
    let StartEvent::Failed { error: error @ StartError::Volume { .. } } = event else {
        panic!("{event:?}");
    };
    assert!(error.to_string().contains("damaged"), "{error}");
    assert_eq!(worker.wait().code(), Some(73));
}

/// A worker of one session keeps its floor as those of many do: whoever starts it again has to count.
#[test]
fn a_worker_of_one_session_is_started_again_in_a_later_generation_alone() {
    for (tier, who) in ALL {
        let mut slot = Slot::new(tier, who);
        let opened = |slot: &Slot, address, token: &str| {
            let status = call(address, "GET", "/v1/status", Some(token), "").0;
            let attached = Client::attach(address, &slot.token(Audience::Attach)).is_ok();
            (status, attached)
        };
        let stale = |slot: &Slot, generation: u64| {
            let (incarnation, generation) = (Incarnation(1), Generation(generation));
            let (error, status) = slot.fails();
            assert_eq!(error, StartError::Stale { incarnation, generation }, "{tier} {who:?}");
            assert_eq!(status.code(), Some(64));
        };
        slot.config.generation = Generation(2);
        let (worker, address) = slot.serve();
        let before = slot.token(Audience::Control);
        assert_eq!(opened(&slot, address, &before), (200, true), "{tier} {who:?}");
        worker.stop();
        for generation in [2, 1] {
            slot.config.generation = Generation(generation);
            stale(&slot, 2);
        }
        // One that never came to serve may be asked for again.
        slot.config.generation = Generation(3);
        let good = std::mem::replace(&mut slot.config.agent.argv, vec!["no-such-agent".into()]);
        assert!(matches!(slot.fails().0, StartError::AgentNotFound { .. }));
        slot.config.agent.argv = good;
        let (mut worker, address) = slot.serve();
        assert_eq!(opened(&slot, address, &before), (401, true), "{tier} {who:?}");
        // It was on the disk before anybody was let in.
        worker.child.kill().unwrap();
        worker.wait();
        eventually("the slot is free", || match slot.fails().0 {
            StartError::SlotBusy { .. } => false,
            error => matches!(error, StartError::Stale { generation: Generation(3), .. }),
        });
        let floor = slot.config.volume.join("state/floors").join(slot.config.session.as_str());
        fs::write(&floor, "3").unwrap();
        slot.config.generation = Generation(4);
        let (error, status) = slot.fails();
        assert!(matches!(&error, StartError::Volume { message } if message.contains("damaged")));
        assert_eq!(status.code(), Some(73));
    }
}
