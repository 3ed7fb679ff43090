//! A volume that sessions share and one of them fills, its bytes or its inodes: that is said, and the others go on.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;

use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;
use nix::unistd::geteuid;
use serde_json::json;

use crate::bounds::{BOTH, attached};
use crate::client::Client;
use crate::harness::{Slot, Who, call, eventually};
use crate::resumable::{Door, numbers};

/// Two sessions on one small volume, which one of them fills.
#[test]
fn a_full_disk_is_said_and_the_next_session_and_its_journal_go_on() {
    for tier in BOTH {
        let Some(volume) = SmallVolume::new("size=24m") else { return };
        let [a, b] = volume.slots(tier);
        let (worker_a, address, mut filler, its_session) = attached(&a);
        let (worker_b, address_b, mut client, session) = attached(&b);
        client.shell(&session, "echo before");
        let id = filler.prompt(&its_session, "!sh cat /dev/zero > big; echo filled; sleep 3");
        let (_, updates) = filler.answer(id);
        let said = format!("{updates:?}");
        assert!(said.contains("filled") && said.contains("the disk is full"), "{tier} {said}");
        assert!(a.status(address).usage.volume_free.unwrap() < 1 << 20);
        // The neighbour is told as well, its turn is answered, and what it said is there for the next client.
        let id = client
            .prompt(&session, "!sh sleep 2; head -c 99000 /dev/zero | tr '\\0' x; echo after");
        let (answer, updates) = client.answer(id);
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        assert!(format!("{updates:?}").contains("the disk is full"), "{updates:?}");
        let (_, replayed) = another(&b, address_b, &session);
        let long = replayed.matches('x').count() >= 99_000;
        assert!(replayed.contains("before") && long && replayed.contains("after"), "{tier}");
        assert!(filler.turn(&its_session, "!sh rm big").0 == "end_turn");
        worker_a.stop();
        worker_b.stop();
    }
}

/// Two sessions on one volume that has bytes enough, and no room for another file.
#[test]
fn where_no_inode_is_left_that_is_said_and_the_next_session_and_its_journal_go_on() {
    for tier in BOTH {
        let Some(volume) = SmallVolume::new("size=64m,nr_inodes=4000") else { return };
        let [a, b] = volume.slots(tier);
        let (worker_a, address, mut filler, its_session) = attached(&a);
        let (worker_b, address_b, mut client, session) = attached(&b);
        client.shell(&session, "echo before | tee kept");
        let fill = "mkdir many && cd many && (seq 9000 | xargs touch 2>&1 | tail -n 1); touch one; \
                    echo made $? $(ls | wc -l); sleep 3";
        let id = filler.prompt(&its_session, &format!("!sh {fill}"));
        let (answer, updates) = filler.answer(id);
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        let said = format!("{updates:?}");
        assert!(said.contains("No space left on device"), "{tier} {said}");
        assert!(said.contains("more files only"), "{tier} {said}");
        let usage = a.status(address).usage;
        assert!(usage.volume_free_files.unwrap() < 10, "{usage:?}");
        assert!(usage.volume_free.unwrap() > 32 << 20, "bytes are not what is short: {usage:?}");
        // The neighbour is told as well; it writes what is there, and another client gets what it said.
        let write = "sleep 2; echo after > kept && cat kept; touch new || echo refused";
        let id = client.prompt(&session, &format!("!sh {write}"));
        let (answer, updates) = client.answer(id);
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        let said = format!("{updates:?}");
        assert!(said.contains("after") && said.contains("refused"), "{tier} {said}");
        assert!(said.contains("more files only"), "{tier} {said}");
        let (mut again, replayed) = another(&b, address_b, &session);
        assert!(replayed.contains("before") && replayed.contains("after"), "{tier} {replayed}");
        for at in [address, address_b] {
            assert_eq!(call(at, "GET", "/healthz", None, "").0, 200);
        }
        assert_eq!(filler.turn(&its_session, "!sh rm -r many").0, "end_turn");
        assert!(again.shell(&session, "touch new && echo room").contains("room"));
        worker_a.stop();
        worker_b.stop();
    }
}

/// What a client does not read fills the disk, on which its conversation is written as well.
#[test]
fn a_disk_that_is_full_under_spool_and_journal_loses_nothing_that_a_client_is_owed_and_tears_no_line()
 {
    const LINES: u64 = 600;
    for resumable in [false, true] {
        let Some(volume) = SmallVolume::new("size=24m") else { return };
        let [slot, _] = volume.slots(Tier::Domain);
        let (worker, address) = slot.serve();
        let flood = format!("!updates {LINES} 65536");
        let token = slot.token(Audience::Attach);
        let waits = || worker.log().contains("its agent waits");
        let (answer, updates, session);
        if resumable {
            let mut door = Door::attach(address, &token);
            session = door.session();
            let id = door.prompt(&session, &flood);
            eventually("a full disk", waits);
            (answer, updates) = door.answer(id);
        } else {
            let mut client = Client::attach(address, &token).unwrap();
            client.initialize();
            session = client.new_session();
            let id = client.prompt(&session, &flood);
            eventually("a full disk", waits);
            (answer, updates) = client.answer(id);
        }
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        assert_eq!(numbers(&updates), (1..=LINES).collect::<Vec<_>>());
        assert!(worker.log().contains("the journal lacks lines"), "{}", worker.log());
        // Of the past whole lines are there, each once and in order.
        let mut client = Client::attach(address, &token).unwrap();
        client.initialize();
        let load = json!({"sessionId": session, "cwd": "/", "mcpServers": []});
        let id = client.request("session/load", load);
        let (answer, replayed) = client.answer(id);
        assert!(answer.get("error").is_none(), "{answer}");
        let past = numbers(&replayed);
        assert!(past.is_sorted_by(|one, next| one < next) && past.len() > 50, "{past:?}");
        assert!(past.len() < usize::try_from(LINES).unwrap(), "there was room for all");
        assert_eq!(client.turn(&session, "on").0, "end_turn");
        worker.stop();
    }
}

/// Another client of a session, and what it is told of what was said.
fn another(slot: &Slot, address: SocketAddr, session: &str) -> (Client, String) {
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    client.initialize();
    let load = json!({"sessionId": session, "cwd": "/", "mcpServers": []});
    let id = client.request("session/load", load);
    let (answer, replayed) = client.answer(id);
    assert!(answer.get("error").is_none(), "{answer}");
    (client, format!("{replayed:?}"))
}

/// A mount of its own, gone with this.
struct SmallVolume(tempfile::TempDir);

impl SmallVolume {
    /// tmpfs(5) with these options, where this user may mount one.
    fn new(options: &str) -> Option<Self> {
        if !geteuid().is_root() {
            println!("SKIP: root, to mount a small volume");
            return None;
        }
        let volume = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("{options},mode=755"), "none"]);
        assert!(mount.arg(volume.path()).status().unwrap().success());
        Some(Self(volume))
    }

    /// Two slots on it.
    fn slots(&self, tier: Tier) -> [Slot; 2] {
        ["a", "b"].map(|name| {
            let mut slot = Slot::new(tier, Who::User);
            let slots = self.0.path().join("slots");
            slot.config.volume = slots.join(name);
            fs::create_dir_all(&slot.config.volume).unwrap();
            slot.config.private = vec![slots.clone()];
            slot.hand_over(&slots);
            slot
        })
    }
}

impl Drop for SmallVolume {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}
