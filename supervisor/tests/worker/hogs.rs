//! A session that takes memory, descriptors or inodes as it likes: its own supervisor and the next session go on.
//!
//! What it takes is bounded by limits that the hog sets itself, so that no machine suffers.

use std::fs;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;

use crate::client::Client;
use crate::harness::{Slot, Who, Worker, call, eventually};

const BOTH: [Tier; 2] = [Tier::Domain, Tier::Namespace];

/// The hog's worker and the next session's.
struct Pair {
    hog: Slot,
    worker: Worker,
    address: SocketAddr,
    client: Client,
    session: String,
    /// The next one's, with its own.
    next: (Slot, Worker, SocketAddr, Client, String),
}

impl Pair {
    fn new(tier: Tier) -> Self {
        let [(hog, worker, address, client, session), next] = [(); 2].map(|()| {
            let slot = Slot::new(tier, Who::User);
            let (worker, address) = slot.serve();
            let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
            client.initialize();
            let session = client.new_session();
            (slot, worker, address, client, session)
        });
        Self { hog, worker, address, client, session, next }
    }

    /// Both supervisors answer and the next session has its turns, and can write.
    fn others_go_on(&mut self) {
        let (slot, _, address, client, session) = &mut self.next;
        for round in 0..5 {
            let said = client.shell(session, &format!("echo {round} > here && cat here"));
            assert!(said.starts_with(&round.to_string()), "{said}");
            assert_eq!(call(self.address, "GET", "/healthz", None, "").0, 200);
            self.hog.status(self.address);
            slot.status(*address);
        }
    }

    /// The most of this field of proc_pid_status(5), in kB, that a process of the hog's worker has.
    fn most(&self, field: &str) -> u64 {
        let of = |pid: &i32| -> Option<u64> {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix(field))?;
            line.split_whitespace().next()?.parse().ok()
        };
        self.worker.descendants().iter().filter_map(of).max().unwrap_or(0)
    }

    fn stop(self) {
        self.worker.stop();
        self.next.1.stop();
    }
}

/// tail(1) keeps the last lines of what it reads, and /dev/zero has no line's end.
#[test]
fn a_session_that_eats_memory_meets_its_limit_and_nobody_else_does() {
    for tier in BOTH {
        let mut pair = Pair::new(tier);
        let eat = "ulimit -v 300000; for i in 1 2 3; do \
                   (while :; do tail /dev/zero; echo refused >> eaten; done) 2>/dev/null & done; wait";
        pair.client.prompt(&pair.session.clone(), &format!("!sh {eat}"));
        eventually("it has eaten", || pair.most("VmHWM:") > 150_000);
        pair.others_go_on();
        let eaten = pair.hog.config.volume.join("sessions");
        eventually("it was refused more", || {
            fs::read_dir(&eaten).unwrap().flatten().any(|session| {
                fs::metadata(session.path().join("work/eaten")).is_ok_and(|file| file.len() > 0)
            })
        });
        pair.others_go_on();
        pair.stop();
    }
}

/// Processes times `nofile`: each takes all that it may have, and stops with them.
#[test]
fn a_session_that_takes_descriptors_meets_its_limit_and_nobody_else_does() {
    for tier in BOTH {
        let mut pair = Pair::new(tier);
        let take = "ulimit -n 10000; for i in 1 2 3; do bash -c 'i=10; \
                    while eval \"exec $i</dev/null\"; do i=$((i+1)); done 2>/dev/null; \
                    echo $i refused; kill -STOP $$' > took-$i & done; wait";
        pair.client.prompt(&pair.session.clone(), &format!("!sh {take}"));
        let sessions = pair.hog.config.volume.join("sessions");
        let took = || -> Vec<u32> {
            let session = fs::read_dir(&sessions).unwrap().flatten().next().unwrap().path();
            let of = |i: i32| fs::read_to_string(session.join(format!("work/took-{i}"))).ok();
            let number = |said: String| said.split_once(" refused")?.0.parse().ok();
            (1..=3).filter_map(of).filter_map(number).collect()
        };
        eventually("each has all it gets", || took().len() == 3);
        assert!(took().iter().all(|number| (9_900..=10_000).contains(number)), "{:?}", took());
        pair.others_go_on();
        // The supervisor takes clients in beside it.
        let mut again = Client::attach(pair.address, &pair.hog.token(Audience::Attach)).unwrap();
        again.initialize();
        pair.stop();
    }
}

/// In one tier: the file system is the same in both.
#[test]
fn a_session_that_makes_a_hundred_thousand_inodes_is_counted_and_the_others_go_on() {
    let mut pair = Pair::new(Tier::Domain);
    let make = "mkdir many && cd many && seq 100000 | xargs touch && echo made && sleep 600";
    pair.client.prompt(&pair.session.clone(), &format!("!sh {make}"));
    pair.others_go_on();
    // Walks yield to whatever else runs, and rest between two for many times as long as one took.
    let until = Instant::now() + Duration::from_secs(300);
    while pair.hog.status(pair.address).usage.disk.is_none_or(|disk| disk.files <= 100_000) {
        assert!(Instant::now() < until, "{:?}", pair.hog.status(pair.address).usage);
        sleep(Duration::from_millis(100));
    }
    pair.others_go_on();
    pair.stop();
}
