//! Hosts, UDP ports and the log: what may be written, and what contradicts itself.

use super::*;
use crate::policy::decide::{self, Decision, Outcome, Setting, Transport, Way};
use crate::policy::egress::{Mode, Reach};

const FRAME: &str = "version = 1\nname = \"t\"\n[landlock]\nabi = 6\nreason = \"r\"\n\
                     [sockets]\nerrno = \"EACCES\"\nreason = \"r\"\n";
const ALLOW: &str = "[egress]\nmode = \"allow-list\"\nreason = \"r\"\n";
const NONE: &str = "[egress]\nmode = \"none\"\nreason = \"r\"\n";

fn parse(rules: &str) -> Result<Policy, PolicyError> {
    Policy::parse(&format!("{FRAME}{rules}"))
}

/// The line within the rules, and the text.
fn refusal(rules: &str) -> (usize, String) {
    let error = parse(rules).expect_err("the policy was accepted");
    (error.position.unwrap().0.saturating_sub(FRAME.lines().count()), error.message)
}

fn host(lines: &str) -> String {
    format!("[[host]]\n{lines}\nreason = \"h\"\n")
}

fn datagrams(abi: u32) -> String {
    format!(
        "[[socket]]\nfamily = \"inet\"\ntypes = [\"dgram\"]\nprotocols = [0]\nabi = {abi}\nreason = \"r\"\n"
    )
}

const UDP: &str = "[[udp]]\nconnect = [53]\nbind = [0]\nreason = \"dns\"\n";

#[test]
fn hosts_are_read_with_the_addresses_that_they_may_lead_to() {
    let rules = [
        ALLOW.to_owned(),
        host("names = [\"api.example.com:443\", \"*.example.org\"]"),
        host("names = [\"db.internal:5432\"]\nreach = [\"private\", \"loopback\"]"),
    ];
    let egress = parse(&rules.concat()).unwrap().egress.unwrap();
    assert_eq!((egress.mode, egress.line), (Mode::AllowList, FRAME.lines().count() + 1));
    assert_eq!(egress.hosts[0].reach, [Reach::Public]);
    assert_eq!(egress.hosts[1].reach, [Reach::Private, Reach::Loopback]);
    assert_eq!(egress.hosts[0].names[1].to_string(), "*.example.org");
    assert_eq!(parse("").unwrap().egress, None);
}

#[test]
fn wrong_sections_name_the_fix() {
    let open = ALLOW.replace("allow-list", "open");
    let tcp = "[[tcp]]\nconnect = [443]\nreason = \"r\"\n";
    let inet = "[[socket]]\nfamily = \"inet6\"\ntypes = [\"stream\"]\nprotocols = [0]\ntier = \"pod\"\nreason = \"r\"\n";
    let log = |what: &str| format!("[log]\nwhat = {what}\nreason = \"r\"\n");
    let names = |names: &str| format!("{ALLOW}{}", host(&format!("names = {names}")));
    let cases = [
        (ALLOW.replace("allow-list", "some"), 2, "unknown variant `some`"),
        (ALLOW.replace("reason = \"r\"\n", ""), 1, "missing field `reason`"),
        (format!("{ALLOW}hosts = []\n"), 4, "unknown field `hosts`"),
        (host("names = [\"a.b\"]"), 1, "hosts mean nothing without a mode"),
        (format!("{open}{}", host("names = [\"a.b\"]")), 4, "egress is open (line 9)"),
        (names("[]"), 5, "names is empty"),
        (names("[\"*.com\"]"), 5, "top-level domain"),
        (names("[\"a.b:1\", \"a.b:1\"]"), 5, "named in line 13 already"),
        (format!("{ALLOW}{}", host("names = [\"a.b\"]\nreach = []")), 6, "reach is empty"),
        (format!("{ALLOW}{}", host("names = [\"a.b\"]\nreach = [\"all\"]")), 6, "unknown variant"),
        (format!("{NONE}{tcp}"), 5, "egress is none (line 9) and this lets ports be connected to"),
        (format!("{tcp}{NONE}"), 2, "egress is none (line 12)"),
        (format!("{NONE}{inet}"), 4, "inet6 sockets leave the machine"),
        (format!("{NONE}{}", inet.replace("inet6", "vsock")), 4, "vsock sockets leave"),
        (UDP.to_owned(), 1, "no [[socket]] rule lists inet or inet6 dgram"),
        (format!("{UDP}{}", datagrams(9)), 0, "need Landlock ABI 10"),
        ("[[udp]]\nreason = \"r\"\n".to_owned() + &datagrams(10), 1, "names no port"),
        (log("[]"), 2, "what is empty"),
        (log("[\"seccomp\", \"seccomp\"]"), 2, "names something twice"),
        (log("[\"audit\"]"), 2, "unknown variant `audit`"),
        (log("[\"landlock\"]") + "required = true\n", 0, "need Landlock ABI 7"),
    ];
    for (rules, line, part) in cases {
        let (found, message) = refusal(&rules);
        assert!(message.contains(part), "{rules}\n{message}");
        assert_eq!(found, line, "{rules}\n{message}");
    }
}

#[test]
fn what_does_not_contradict_itself_is_taken() {
    let own = "[[tcp]]\nbind = [\"{ports}\"]\nreason = \"r\"\n";
    let unix =
        "[[socket]]\nfamily = \"unix\"\ntypes = [\"stream\"]\nprotocols = [0]\nreason = \"r\"\n";
    parse(&format!("{NONE}{own}{unix}")).unwrap();
    parse(&format!("{UDP}{}", datagrams(10))).unwrap();
    let newer = FRAME.replace("abi = 6", "abi = 10");
    Policy::parse(&format!("{newer}{UDP}{}", datagrams(0))).unwrap();
    parse("[log]\nwhat = [\"landlock\"]\nreason = \"r\"\n").unwrap();
    parse("[log]\nwhat = [\"seccomp\"]\nrequired = true\nreason = \"r\"\n").unwrap();
}

#[test]
fn the_host_rule_that_decides_is_named() {
    let rules = [
        ALLOW.to_owned(),
        host("names = [\"api.example.com:443\", \"*.example.org\"]"),
        host("names = [\"192.0.2.1\"]"),
    ];
    let policy = parse(&rules.concat()).unwrap();
    let ask = |name, port| {
        let Decision { outcome, rule, notes, .. } = decide::host(&policy, name, port);
        assert!(notes.iter().any(|note| note.contains("not enforced by this build")), "{notes:?}");
        (outcome, rule.unwrap().line - FRAME.lines().count(), notes)
    };
    let api = ask("api.example.com", 443);
    assert_eq!((api.0, api.1), (Outcome::Allowed, 4));
    assert_eq!(api.2[0], "where it leads to a public address");
    assert_eq!(ask("a.example.org", 1).1, 4);
    assert_eq!((ask("192.0.2.1", 80).0, ask("192.0.2.1", 80).1), (Outcome::Allowed, 7));
    for (name, port) in [("api.example.com", 80), ("example.org", 443), ("192.0.2.2", 80)] {
        assert_eq!((ask(name, port).0, ask(name, port).1), (Outcome::Refused, 1), "{name}");
    }
    let none = parse(NONE).unwrap();
    let refused = decide::host(&none, "a.b", 1);
    assert_eq!((refused.outcome, refused.errno), (Outcome::Refused, Some(Errno::Eacces)));
    assert_eq!(none.egress.unwrap().unenforced(), None);
    let open = decide::host(&Policy::parse(DEVELOPER).unwrap(), "a.b", 1);
    assert_eq!(open.outcome, Outcome::Allowed);
    assert_eq!(open.rule.unwrap().what, "[egress] mode open");
    assert_eq!(decide::host(&parse("").unwrap(), "a.b", 1).rule, None);
}

#[test]
fn udp_is_open_below_the_abi_that_restricts_it() {
    let policy = parse(&format!("{UDP}{}", datagrams(10))).unwrap();
    let open = parse(&datagrams(0)).unwrap();
    let ask = |policy: &Policy, landlock_abi, port| {
        let setting = Setting { landlock_abi, ..Setting::symbolic(policy) };
        let family = SocketFamily::Inet;
        decide::port(policy, &setting, Transport::Udp, Way::Connect, family, port).outcome
    };
    assert_eq!(ask(&policy, 9, 53), Outcome::Refused);
    assert_eq!(ask(&policy, 10, 53), Outcome::Allowed);
    assert_eq!(ask(&policy, 10, 54), Outcome::Refused);
    assert_eq!(ask(&open, 9, 54), Outcome::Allowed);
    assert_eq!(ask(&open, 10, 54), Outcome::Refused);
}

#[test]
fn scopes_and_limits_are_explained() {
    let developer = Policy::parse(DEVELOPER).unwrap();
    let abstracts = decide::scope(&developer, Scope::AbstractUnixSocket);
    assert_eq!((abstracts.outcome, abstracts.errno), (Outcome::Refused, Some(Errno::Eperm)));
    assert!(abstracts.rule.unwrap().reason.starts_with("abstract sockets have no owner"));
    let bare = parse("").unwrap();
    assert_eq!(decide::scope(&bare, Scope::AbstractUnixSocket).outcome, Outcome::Allowed);
    // What starts sessions scopes signals by itself.
    assert_eq!(decide::scope(&bare, Scope::Signal).outcome, Outcome::Refused);
    let files = decide::limit(&developer, Resource::Nofile);
    assert_eq!(files.outcome, Outcome::Allowed);
    assert_eq!(files.notes[0], "soft limit 1024, hard limit 65536");
    assert_eq!(files.rule.unwrap().what, "[[rlimit]] nofile");
    let none = decide::limit(&developer, Resource::Nproc);
    assert_eq!((none.outcome, none.rule), (Outcome::Allowed, None));
    assert!(none.notes.iter().any(|note| note.contains("does not bound one session")));
}

#[test]
fn audit_is_developer_with_a_log() {
    let (developer, audit) = (Policy::parse(DEVELOPER).unwrap(), Policy::parse(AUDIT).unwrap());
    let diff = Diff::between(&developer, &audit);
    assert_eq!(diff.only_b, []);
    let lost: Vec<&str> = diff.only_a.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(lost, ["a kernel with Landlock ABI 6"]);
    assert!(diff.otherwise.iter().all(|one| one.kind == "log"), "{:?}", diff.otherwise);
    assert_eq!(diff.otherwise.len(), 3, "two sources, and that they are required");
    assert!(audit.log.is_some_and(|log| log.required));
    // And nothing that a comparison of meanings could overlook.
    let rest = Policy {
        revision: String::new(),
        name: String::new(),
        landlock_abi: 0,
        log: None,
        ..Policy::parse(AUDIT).unwrap()
    };
    let own = Policy { revision: String::new(), name: String::new(), landlock_abi: 0, ..developer };
    assert_eq!(without_lines(&rest), without_lines(&own));
}

/// As text, without the numbers of lines.
fn without_lines(policy: &Policy) -> String {
    let text = format!("{policy:?}");
    let parts =
        text.split("line: ").map(|part| part.trim_start_matches(|c: char| c.is_ascii_digit()));
    parts.collect()
}

#[test]
fn hosts_udp_and_log_are_compared_both_ways() {
    let list = |lines: &str| parse(&format!("{ALLOW}{}", host(lines))).unwrap();
    let wide = list("names = [\"*.example.org\", \"a.b:443\"]");
    let narrow = list("names = [\"x.example.org:443\", \"a.b:443\"]");
    let diff = Diff::between(&narrow, &wide);
    assert_eq!(diff.only_b.len(), 1);
    assert_eq!(diff.only_b[0].text, "*.example.org, public addresses");
    assert_eq!((diff.only_b[0].kind, diff.only_a.len()), ("egress", 0));
    let private =
        list("names = [\"*.example.org\", \"a.b:443\"]\nreach = [\"public\", \"private\"]");
    assert_eq!(Diff::between(&wide, &private).only_b.len(), 2);
    let (none, open) = (parse(NONE).unwrap(), parse("").unwrap());
    assert_eq!(Diff::between(&none, &open).only_b[0].text, "every host");
    assert_eq!(Diff::between(&wide, &open).only_b[0].text, "every host");
    assert_eq!(Diff::between(&open, &none).only_b, []);
    let udp = parse(&format!("{UDP}{}", datagrams(10))).unwrap();
    let diff = Diff::between(&parse(&datagrams(10)).unwrap(), &udp);
    let texts: Vec<_> = diff.only_b.iter().map(|one| (one.kind, one.text.as_str())).collect();
    assert_eq!(texts, [("udp", "bind 0"), ("udp", "connect 53")]);
}
