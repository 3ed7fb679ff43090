//! An acknowledgement of the resumable door: what it covers was read by the agent, or need not be.

use std::fs;
use std::time::{Duration, Instant};

use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;
use serde_json::json;

use crate::ends::TURN;
use crate::harness::{LONG, Slot, Who, eventually};
use crate::resumable::Door;

/// More than a pipe holds (pipe(7)), and less than the window.
const LENGTH: usize = 300_000;

#[test]
fn a_message_is_acknowledged_when_all_of_it_was_written_to_the_agent_and_no_sooner() {
    let mut slot = Slot::new(Tier::Domain, Who::User);
    // Reads on when it is let.
    let script = format!("{TURN}while ! [ -e go ]; do sleep 0.05; done; cat >read");
    slot.config.agent.argv = ["/bin/sh", "-c", &script].map(str::to_owned).to_vec();
    let (worker, address) = slot.serve();
    let mut door = Door::attach(address, &slot.token(Audience::Attach));
    let session = door.session();
    door.prompt(&session, "work");
    // One fits the pipe and is written at once; the next does not, and what is behind it waits with it.
    let small = door.notify("_test/small", json!({}));
    let until = Instant::now() + LONG;
    while door.acknowledged() < small {
        assert!(Instant::now() < until, "what fits the pipe was written");
        door.listen(Duration::from_millis(100));
    }
    let large = door.notify("_test/large", json!({"text": "x".repeat(LENGTH)}));
    let behind = door.notify("_test/behind", json!({}));
    // Nothing tells that no more comes; a worker that acknowledged what it has read itself would have done so long since.
    door.listen(Duration::from_secs(2));
    assert_eq!(door.acknowledged(), small);
    // Nor does another connection make it so: of what is said again none is new.
    door.cut();
    door.again().unwrap();
    door.listen(Duration::from_secs(1));
    assert_eq!(door.acknowledged(), small);
    fs::write(slot.session().join("work/go"), "").unwrap();
    while door.acknowledged() < behind {
        assert!(Instant::now() < until, "{} of {behind}, {large}", door.acknowledged());
        door.listen(Duration::from_millis(100));
    }
    // What is in the pipe has yet to be read.
    let read = || fs::read_to_string(slot.session().join("work/read")).unwrap();
    eventually("all of it, once", || {
        let read = read();
        ["small", "large", "behind"]
            .iter()
            .all(|name| read.matches(&format!("_test/{name}")).count() == 1)
    });
    worker.stop();
}
