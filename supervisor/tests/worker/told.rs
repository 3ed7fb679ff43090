//! What the walls refuse is told in the turn, with the lines that allow it; with these lines it passes and nothing is told.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};

use casemate_audit::Found;
use casemate_protocol::tier::Tier;
use casemate_protocol::token::Audience;
use serde_json::Value;

use crate::client::{Client, text_of};
use crate::harness::{ALL, Slot, Who, Worker, call, example};

struct Room {
    worker: Worker,
    address: SocketAddr,
    client: Client,
    session: String,
}

fn room(slot: &Slot) -> Room {
    let (worker, address) = slot.serve();
    let mut client = Client::attach(address, &slot.token(Audience::Attach)).unwrap();
    client.initialize();
    let session = client.new_session();
    Room { worker, address, client, session }
}

impl Room {
    /// What a command says, and the refusals that are told in its turn.
    fn shell(&mut self, command: &str) -> (String, Vec<Value>) {
        let id = self.client.prompt(&self.session, &format!("!sh {command}"));
        let (answer, updates) = self.client.answer(id);
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer}");
        let said = text_of(&updates);
        let is_told = |update: &Value| {
            update["toolCallId"].as_str().is_some_and(|id| id.starts_with("casemate-refused-"))
        };
        let updates = updates.into_iter().map(|line| line["params"]["update"].clone());
        (said, updates.filter(is_told).collect())
    }

    fn metric(&self, slot: &Slot, name: &str) -> u64 {
        let text =
            call(self.address, "GET", "/metrics", Some(&slot.token(Audience::Control)), "").1;
        let value = text.lines().find_map(|line| line.strip_prefix(&format!("casemate_{name} ")));
        value.unwrap_or_else(|| panic!("{name} in {text}")).parse().unwrap()
    }
}

/// A listener that says something to whoever comes, while the test lives.
fn greeter() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"hello");
        }
    });
    port
}

/// Both of IPv4 and by an IPv6 address that is one; the attempts' outcomes.
fn connect(port: u16) -> String {
    // At its own path, unless the session's own trees are shown there.
    let program = example("inside");
    format!(
        "for program in {} /programs/1/inside; do [ -x $program ] && $program connect {port}; done; true",
        program.display()
    )
}

fn outcome(said: &str, attack: &str) -> String {
    let tried = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found = tried.into_iter().find(|tried| tried["attack"] == attack);
    found.unwrap_or_else(|| panic!("{attack} in {said}"))["outcome"].as_str().unwrap().to_owned()
}

/// MSG_FASTOPEN and MPTCP.
const OTHERS: [&str; 2] = ["refused: sendto", "refused: socket inet stream, protocol 262"];

#[test]
fn a_refused_connect_is_told_with_the_lines_that_allow_it_and_with_them_it_passes() {
    let port = greeter();
    for (tier, who) in ALL {
        let mut slot = Slot::new(tier, who);
        slot.config.programs.push(example("inside"));
        let mut walled = room(&slot);
        let status = slot.status(walled.address).enforcement;
        assert!(
            status.contains(&"refusals are told: connect, bind, sockets, system calls".to_owned()),
            "{status:?}"
        );
        let (said, told) = walled.shell(&connect(port));
        assert_eq!(outcome(&said, "connect"), "EACCES", "{tier} {who:?} {said}");
        // Twice, once of it mapped: told once. The other two are ways past connect(2) that the attack tries as well.
        let titles: Vec<&str> = told.iter().map(|told| told["title"].as_str().unwrap()).collect();
        assert_eq!(titles[1..], OTHERS, "{tier} {who:?} {told:?}");
        assert_eq!(told[0]["title"], format!("refused: connect to 127.0.0.1:{port}"));
        assert_eq!(told[0]["status"], "failed");
        let why = told[0]["content"][0]["content"]["text"].as_str().unwrap();
        let line = format!("connect = [{port}]");
        assert!(why.contains(&line) && why.contains(&format!("--connect {port}")), "{why}");
        assert_eq!(walled.shell("true").1, Vec::<Value>::new(), "not in the next turn");
        assert!(walled.metric(&slot, "actions_refused_total") >= 2);
        walled.worker.stop();
        let recorded =
            casemate_audit::lines(Found::in_directory(&slot.config.volume.join("state")).unwrap());
        let is_it = |line: &Vec<u8>| {
            let event: Value = serde_json::from_slice(line).unwrap();
            event["metadata"]["event_code"] == "action.refused"
                && event["class_uid"] == 2004
                && event["message"].as_str().unwrap().contains(&format!("127.0.0.1:{port}"))
        };
        assert!(recorded.unwrap().iter().any(is_it), "{tier} {who:?}");

        // What the chat was told, word by word.
        let lines = &why[why.rfind("[[tcp]]").unwrap()..why.find("\n\nFor one session").unwrap()];
        let mut slot = Slot::new(tier, who);
        slot.config.programs.push(example("inside"));
        slot.config.policy += &format!("\n{lines}\n");
        let mut open = room(&slot);
        let (said, told) = open.shell(&connect(port));
        assert_eq!(outcome(&said, "connect"), "succeeded", "{tier} {who:?} {said}");
        let titles: Vec<&str> = told.iter().map(|told| told["title"].as_str().unwrap()).collect();
        assert_eq!(titles, OTHERS, "{tier} {who:?}");
        assert_eq!(open.metric(&slot, "actions_refused_total"), 2);
        open.worker.stop();
    }
}

#[test]
fn a_policy_that_says_quiet_tells_nothing_and_refuses_the_same() {
    let port = greeter();
    for (tier, who) in ALL {
        let mut slot = Slot::new(tier, who);
        slot.config.programs.push(example("inside"));
        let policy = &slot.config.policy;
        slot.config.policy =
            policy.replacen("version = 1\n", "version = 1\ndenials = \"quiet\"\n", 1);
        let mut room = room(&slot);
        let (said, told) = room.shell(&connect(port));
        assert_eq!(outcome(&said, "connect"), "EACCES", "{tier} {who:?} {said}");
        assert_eq!(told, Vec::<Value>::new());
        let status = slot.status(room.address).enforcement;
        assert!(status.iter().any(|line| line.starts_with("refusals are not told")), "{status:?}");
        room.worker.stop();
    }
}

fn why(told: &Value) -> &str {
    told["content"][0]["content"]["text"].as_str().unwrap()
}

/// The policy with the names that were told in place of those in that line's table, as a person would edit it.
fn edited(policy: &str, why: &str) -> String {
    let (before, names) = why.split_once(" it would be allowed:\n\n").unwrap();
    let line: usize = before.rsplit_once(" line ").unwrap().1.parse().unwrap();
    let start: usize = policy.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let (above, table) = policy.split_at(start);
    assert!(table.starts_with("[[syscall]]\nnames = ["), "{why}");
    let (_, below) = table.split_once("]\nerrno").unwrap();
    format!("{above}[[syscall]]\n{}errno{below}", &names[..=names.find(']').unwrap() + 1])
}

#[test]
fn a_refused_call_and_a_refused_kind_of_socket_are_told_and_with_what_was_told_they_pass() {
    // Of itself, which Landlock has nothing against; a number for each architecture.
    const CALL: &str = "perl -e 'print syscall(`uname -m` =~ /x86/ ? 310 : 270, $$, 0, 0, 0, 0, 0) == 0 ? \"it-ran\" : $!'";
    const NAME: &str = "process_vm_readv";
    const SOCKET: &str = "bash -c 'exec 3<>/dev/udp/127.0.0.1/9 && echo it-ran' 2>&1";
    let titled = |told: &[Value], title: &str| {
        let found = told.iter().find(|told| told["title"] == format!("refused: {title}"));
        found.map(|told| why(told).to_owned())
    };
    const UDP: &str = "socket inet dgram, protocol 17";
    for (tier, who) in ALL {
        let slot = Slot::new(tier, who);
        let mut walled = room(&slot);
        let (said, told) = walled.shell(CALL);
        assert!(said.contains("not permitted"), "{tier} {who:?} {said}");
        let why = titled(&told, NAME).unwrap_or_else(|| panic!("{told:?} {said}"));
        // A habit is no news.
        assert_eq!(titled(&walled.shell(CALL).1, NAME), None);
        let policy = edited(&slot.config.policy, &why);
        assert_eq!(policy.len() + NAME.len() + 4, slot.config.policy.len());
        let (said, told) = walled.shell(SOCKET);
        assert!(said.contains("Permission denied"), "{tier} {who:?} {said}");
        let why = titled(&told, UDP).unwrap_or_else(|| panic!("{told:?}"));
        assert!(why.contains("opens UDP to every address"), "{why}");
        let lines = &why[why.find("[[socket]]\n").unwrap()..why.find("\n\nIt opens").unwrap()];
        assert!(walled.metric(&slot, "actions_refused_total") >= 3);
        walled.worker.stop();

        let mut slot = Slot::new(tier, who);
        slot.config.policy = format!("{policy}\n{lines}\n");
        let mut open = room(&slot);
        for (name, command) in [(NAME, CALL), (UDP, SOCKET)] {
            let (said, told) = open.shell(command);
            assert!(said.contains("it-ran"), "{tier} {who:?} {said}");
            assert_eq!(titled(&told, name), None, "{told:?}");
        }
        open.worker.stop();
    }
}

/// A command as a tool of the agent's: what it put out, and what was guessed from it.
fn tool(room: &mut Room, command: &str) -> (String, Vec<Value>) {
    let id = room.client.prompt(&room.session, &format!("!tool {command}"));
    let updates = room.client.answer(id).1;
    let mut updates: Vec<Value> =
        updates.into_iter().map(|line| line["params"]["update"].clone()).collect();
    let of_tool = |update: &&Value| update["sessionUpdate"] == "tool_call_update";
    let said = updates.iter().find(of_tool).unwrap()["content"].to_string();
    updates.retain(|update| update["title"].as_str().is_some_and(|it| it.starts_with("perhaps")));
    (said, updates)
}

/// Under a policy that does not grant `/etc`.
#[test]
fn a_refused_path_is_guessed_from_what_a_tool_says_and_granted_by_the_lines() {
    const READ: &str = "cat /etc/passwd 2>&1";
    for (tier, who) in ALL {
        let mut slot = Slot::new(tier, who);
        let narrow = slot.config.policy.replacen("\"/etc\"\n", "\"/etc/alternatives\"\n", 1);
        assert_ne!(narrow, slot.config.policy);
        slot.config.policy.clone_from(&narrow);
        let mut walled = room(&slot);
        let (said, told) = tool(&mut walled, READ);
        assert!(said.contains("Permission denied"), "{tier} {who:?} {said}");
        assert_eq!(told.len(), 1, "{tier} {who:?} {said} {told:?}");
        assert_eq!(told[0]["title"], "perhaps refused: read /etc/passwd");
        let why = why(&told[0]).to_owned();
        assert!(why.starts_with("A guess"), "{why}");
        // Words alone, and what the policy grants, are nothing.
        for command in ["echo /etc/passwd", "echo \"$HOME/x: Permission denied\"", "true"] {
            assert_eq!(tool(&mut walled, command).1, Vec::<Value>::new(), "{command}");
        }
        assert_eq!(walled.metric(&slot, "actions_refused_total"), 0, "nobody counts a guess");
        walled.worker.stop();

        let mut slot = Slot::new(tier, who);
        slot.config.policy = format!("{narrow}\n{}\n", &why[why.rfind("[[path]]\n").unwrap()..]);
        let mut open = room(&slot);
        let (said, told) = tool(&mut open, READ);
        assert!(said.contains("root:") && told.is_empty(), "{tier} {who:?} {said} {told:?}");
        open.worker.stop();
    }
}

/// bash has connect(2) without a process for each.
#[test]
fn ten_thousand_refusals_are_a_few_lines_and_the_supervisor_answers() {
    for (tier, who) in ALL {
        let slot = Slot::new(tier, who);
        let mut room = room(&slot);
        let script = "bash -c 'for i in {1..10000}; do : 3<>/dev/tcp/127.0.0.1/$((40000 + i % 50)); done' \
                      2>&1 | grep -c 'Permission denied'";
        let id = room.client.prompt(&room.session, &format!("!sh {script}"));
        for _ in 0..5 {
            assert_eq!(call(room.address, "GET", "/healthz", None, "").0, 200);
        }
        let (_, updates) = room.client.answer(id);
        let said = text_of(&updates);
        let told: Vec<&str> = updates
            .iter()
            .filter_map(|line| line["params"]["update"]["title"].as_str())
            .filter(|title| title.starts_with("refused: "))
            .collect();
        assert_eq!(told.len(), 6, "{tier} {who:?} {told:?}");
        assert!(told[5].ends_with(" attempts more"), "{told:?}");
        // bash says it twice.
        assert_eq!(said.lines().next(), Some("20000"), "{tier} {who:?} {said}");
        assert_eq!(room.metric(&slot, "actions_refused_total"), 10_000);
        assert_eq!(room.metric(&slot, "actions_unread_total"), 0);
        room.worker.stop();
        let recorded =
            casemate_audit::lines(Found::in_directory(&slot.config.volume.join("state")).unwrap());
        let refused = recorded
            .unwrap()
            .iter()
            .filter(|line| {
                String::from_utf8_lossy(line).contains("\"event_code\":\"action.refused\"")
            })
            .count();
        assert!(refused <= 20, "{tier} {who:?}: {refused} lines of the audit log");
    }
}

/// A flood of calls, of kinds of sockets that are all different, and of both between lines of the agent's own: each is a number.
#[test]
fn however_many_calls_are_refused_the_supervisor_takes_no_more_memory() {
    let slot = Slot::new(Tier::Domain, Who::User);
    let mut room = room(&slot);
    let flood = |times: u32| {
        format!(
            "perl -e '$call = `uname -m` =~ /x86/ ? 310 : 270; for (1..{times}) {{ syscall($call, $$, 0, 0, 0, 0, 0); socket(S, 50 + $_ % 1000, $_ % 7, $_ % 900) }}'"
        )
    };
    let pid = room.worker.pid();
    let resident = || {
        let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    room.shell(&flood(5_000));
    let before = (resident(), room.metric(&slot, "actions_refused_total"));
    let (_, told) = room.shell(&flood(50_000));
    let (after, refused) = (resident(), room.metric(&slot, "actions_refused_total"));
    println!("resident {} KiB before and {} KiB after", before.0 >> 10, after >> 10);
    assert!(refused - before.1 >= 100_000, "{refused}");
    assert!(told.len() <= 6, "{told:?}");
    assert!(after < before.0 + (1 << 20), "{before:?} {after}");
    assert_eq!(call(room.address, "GET", "/healthz", None, "").0, 200);
    room.worker.stop();
}
