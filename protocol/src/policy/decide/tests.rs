//! Answers on a small policy, each with the line that decides.

use super::*;
use crate::policy::{Access, BUILT_IN, Bound, DEVELOPER, PathTemplate, SocketCall, SocketFamily};

const POLICY: &str = r#"version = 1
name = "t"
[landlock]
abi = 6
reason = "r"
[sockets]
errno = "EAFNOSUPPORT"
reason = "no others"
[[path]]
path = "/a"
access = ["read", "execute"]
reason = "wide"
[[path]]
path = "/a/b"
access = ["write"]
reason = "narrow"
[[path]]
path = "{home}"
access = ["read"]
reason = "home"
[[path]]
path = "/t"
access = ["read"]
tier = "namespace"
reason = "later"
[[tcp]]
connect = [443, "{connect}"]
bind = ["{ports}"]
reason = "ports"
[[socket]]
family = "inet"
types = ["stream"]
protocols = [0]
reason = "tcp"
[[syscall]]
names = ["clone"]
errno = "EPERM"
when = [{ arg = 0, bits = 64, op = "any-bits", value = 0x30 }]
reason = "namespaces"
[[syscall]]
names = ["clone", "bpf"]
errno = "ENOSYS"
when = [{ arg = 1, bits = 32, op = "equal", value = 7 }]
reason = "seven"
[[environment]]
pass = ["LANG"]
set = { HOME = "{home}/x{{}}" }
reason = "env"
"#;

fn policy() -> Policy {
    Policy::parse(POLICY).unwrap()
}

fn line_of(part: &str) -> usize {
    let at = POLICY.find(part).unwrap();
    POLICY[..POLICY[..at].rfind("[[").unwrap()].lines().count() + 1
}

fn at(asked: &str, access: Access, setting: &Setting) -> Decision {
    let asked = PathTemplate::parse(asked).unwrap();
    let answer = path(&policy(), setting, &asked, &str::to_owned);
    answer.access.into_iter().find(|one| one.access == access).unwrap().decision
}

fn line(decision: &Decision) -> Option<usize> {
    decision.rule.as_ref().map(|rule| rule.line)
}

#[test]
fn rights_add_up_and_the_narrowest_rule_is_named() {
    let symbolic = Setting::symbolic(&policy());
    let read = at("/a/b/c", Access::Read, &symbolic);
    assert_eq!((read.outcome, line(&read)), (Outcome::Allowed, Some(line_of("wide"))));
    let write = at("/a/b/c", Access::Write, &symbolic);
    assert_eq!((write.outcome, line(&write)), (Outcome::Allowed, Some(line_of("narrow"))));
    assert_eq!(write.rule.unwrap().reason, "narrow");
    let write = at("/a/bc", Access::Write, &symbolic);
    assert_eq!((write.outcome, write.errno), (Outcome::Refused, Some(Errno::Eacces)));
    // What comes nearest is named, so that one sees which rule to change.
    assert_eq!(write.rule.unwrap().line, line_of("wide"));
    let outside = at("/x", Access::Read, &symbolic);
    assert_eq!((outside.outcome, line(&outside)), (Outcome::Refused, None));
}

/// The kernel opens what it runs for reading (Landlock's `hook_file_open`).
#[test]
fn to_run_a_file_needs_read_too() {
    let text = POLICY.replace("[\"read\", \"execute\"]", "[\"execute\"]");
    let policy = Policy::parse(&text).unwrap();
    let asked = PathTemplate::parse("/a/x").unwrap();
    let ask = |policy: &Policy| {
        let answer = path(policy, &Setting::symbolic(policy), &asked, &str::to_owned);
        answer.access[1].decision.outcome
    };
    assert_eq!((ask(&self::policy()), ask(&policy)), (Outcome::Allowed, Outcome::Refused));
}

#[test]
fn placeholders_are_symbols_until_they_are_filled() {
    let mut setting = Setting::symbolic(&policy());
    let read = at("{home}/.config", Access::Read, &setting);
    assert_eq!((read.outcome, line(&read)), (Outcome::Allowed, Some(line_of("home"))));
    let other = at("{work}", Access::Read, &setting);
    assert_eq!(other.outcome, Outcome::Refused);
    let read = at("/h/.config", Access::Read, &setting);
    assert_eq!(read.outcome, Outcome::Refused);
    assert!(read.notes.iter().any(|note| note.contains("{home} in line")), "{read:?}");
    setting.places.insert(Place::Home, vec!["/h".to_owned()]);
    assert_eq!(at("/h/.config", Access::Read, &setting).outcome, Outcome::Allowed);
    assert_eq!(at("{home}/.config", Access::Read, &setting).outcome, Outcome::Allowed);
    assert_eq!(at("/hh", Access::Read, &setting).outcome, Outcome::Refused);
    setting.places.insert(Place::Home, Vec::new());
    assert_eq!(at("/h", Access::Read, &setting).outcome, Outcome::Refused);
}

#[test]
fn links_are_followed_on_both_sides() {
    let real = |path: &str| path.replace("/link", "/a");
    let setting = Setting::symbolic(&policy());
    let asked = PathTemplate::parse("/link/x").unwrap();
    let answer = path(&policy(), &setting, &asked, &real);
    assert_eq!(answer.path, "/a/x");
    assert_eq!(answer.access[0].decision.outcome, Outcome::Allowed);
}

#[test]
fn a_rule_of_a_stronger_tier_is_left_out_and_said() {
    let mut setting = Setting::symbolic(&policy());
    let read = at("/t", Access::Read, &setting);
    assert_eq!(read.outcome, Outcome::Refused);
    assert!(read.notes.iter().any(|note| note.contains("from tier namespace on")), "{read:?}");
    setting.tier = Tier::Namespace;
    assert_eq!(at("/t", Access::Read, &setting).outcome, Outcome::Allowed);
}

#[test]
fn ports_need_a_socket_and_a_rule() {
    let mut setting = Setting::symbolic(&policy());
    let ask = |setting: &Setting, way, family, port| {
        let decision = tcp(&policy(), setting, way, family, port);
        (decision.outcome, line(&decision))
    };
    let (inet, ports) = (SocketFamily::Inet, Some(line_of("\"ports\"")));
    assert_eq!(ask(&setting, Way::Connect, inet, 443), (Outcome::Allowed, ports));
    assert_eq!(ask(&setting, Way::Connect, inet, 80), (Outcome::Depends, ports));
    assert_eq!(ask(&setting, Way::Bind, inet, 0), (Outcome::Refused, None));
    let six = tcp(&policy(), &setting, Way::Connect, SocketFamily::Inet6, 443);
    assert_eq!((six.outcome, six.errno), (Outcome::Refused, Some(Errno::Eafnosupport)));
    setting.connect = Some(vec![80]);
    setting.ports = Some(PortRange { first: 20_000, count: 2 });
    assert_eq!(ask(&setting, Way::Connect, inet, 80), (Outcome::Allowed, ports));
    assert_eq!(ask(&setting, Way::Connect, inet, 81), (Outcome::Refused, None));
    assert_eq!(ask(&setting, Way::Bind, inet, 20_001), (Outcome::Allowed, ports));
    assert_eq!(ask(&setting, Way::Bind, inet, 20_002), (Outcome::Refused, None));
}

#[test]
fn the_first_matching_call_rule_decides_and_unknown_arguments_are_said() {
    let setting = Setting::symbolic(&policy());
    let ask = |arguments: &[Option<u64>]| syscall(&policy(), &setting, "clone", arguments);
    let (spaces, seven) = (Some(line_of("namespaces")), Some(line_of("seven")));
    let both = ask(&[Some(0x20), Some(7)]);
    assert_eq!((line(&both), both.errno), (spaces, Some(Errno::Eperm)));
    let second = ask(&[Some(1), Some(0xffff_0000_0000_0007)]);
    assert_eq!((line(&second), second.errno), (seven, Some(Errno::Enosys)));
    assert_eq!(ask(&[Some(1), Some(8)]).outcome, Outcome::Allowed);
    let open = ask(&[]);
    assert_eq!((open.outcome, line(&open), open.notes.len()), (Outcome::Depends, spaces, 2));
    assert_eq!(
        open.notes[0],
        format!("line {} answers EPERM if argument 0 has a bit of 0x30", spaces.unwrap())
    );
    assert_eq!(ask(&[None, Some(7)]).outcome, Outcome::Refused);
    assert_eq!(syscall(&policy(), &setting, "read", &[]).outcome, Outcome::Allowed);
}

#[test]
fn sockets_are_refused_unless_listed() {
    let setting = Setting::symbolic(&policy());
    let ask = |family, kind, protocol| {
        let wanted = [Some(family), Some(kind), protocol];
        let decision = socket(&policy(), &setting, SocketCall::Socket, wanted);
        (decision.outcome, line(&decision), decision.errno)
    };
    let (listed, rest) = (Some(line_of("\"tcp\"")), Some(6));
    assert_eq!(ask(2, 1, Some(0)), (Outcome::Allowed, listed, None));
    assert_eq!(ask(2, 1 | 0o2_000_000, Some(0)), (Outcome::Allowed, listed, None));
    assert_eq!(ask(2, 2, Some(0)), (Outcome::Refused, rest, Some(Errno::Eafnosupport)));
    assert_eq!(ask(2, 1, None).0, Outcome::Depends);
    let pair = [Some(1), Some(1), Some(0)];
    assert_eq!(syscall(&policy(), &setting, "socketpair", &pair).outcome, Outcome::Refused);
    let text = POLICY.replace(
        "protocols = [0]",
        "protocols = [0]\ncalls = [\"socket\"]\ntier = \"namespace\"\nabi = 9",
    );
    let later = Policy::parse(&text).unwrap();
    let ask = |call, tier, landlock_abi| {
        let setting = Setting { tier, landlock_abi, ..Setting::symbolic(&later) };
        socket(&later, &setting, call, [Some(2), Some(1), Some(0)])
    };
    let (one, both) = (SocketCall::Socket, SocketCall::Socketpair);
    assert_eq!(ask(one, Tier::Namespace, 9).outcome, Outcome::Allowed);
    for refused in
        [ask(one, Tier::Domain, 9), ask(one, Tier::Namespace, 8), ask(both, Tier::Pod, 9)]
    {
        assert_eq!(refused.outcome, Outcome::Refused);
        assert!(
            refused.notes[0]
                .contains("to socket in tier namespace or stronger, from Landlock ABI 9 on"),
            "{refused:?}"
        );
    }
}

#[test]
fn variables_are_left_out_unless_named() {
    let env = Some(line_of("env"));
    assert_eq!(line(&variable(&policy(), "LANG")), env);
    let home = variable(&policy(), "HOME");
    assert_eq!((home.outcome, line(&home)), (Outcome::Allowed, env));
    assert_eq!(home.notes, ["set to {home}/x{{}}"]);
    let token = variable(&policy(), "TOKEN");
    assert_eq!((token.outcome, token.rule), (Outcome::Refused, None));
}

#[test]
fn a_bound_is_told_with_its_line_or_as_the_default() {
    let notes = |policy: &Policy, bound| super::bound(policy, bound).notes.join("; ");
    for (_, text) in BUILT_IN {
        let policy = Policy::parse(text).unwrap();
        for bound in Bound::ALL {
            let rule = super::bound(&policy, bound).rule.unwrap();
            assert_eq!(text.lines().nth(rule.line - 1), Some("[bounds]"));
            assert_eq!(rule.what, format!("[bounds] {bound}"));
            assert!(!rule.reason.is_empty());
        }
    }
    let policy = Policy::parse(DEVELOPER).unwrap();
    assert!(notes(&policy, Bound::Processes).contains("up to 2048"));
    assert!(notes(&policy, Bound::Disk).contains("up to 64GiB"));
    let table = DEVELOPER.find("[bounds]").unwrap();
    let without = Policy::parse(&DEVELOPER[..table]).unwrap();
    assert_eq!(super::bound(&without, Bound::Files).rule, None);
    assert!(notes(&without, Bound::Files).contains("the defaults hold; up to 4000000"));
    let unlimited = DEVELOPER.replace("disk = \"64GiB\"", "disk = \"unlimited\"");
    let unlimited = notes(&Policy::parse(&unlimited).unwrap(), Bound::Disk);
    assert!(unlimited.contains("up to unlimited") && !unlimited.contains("ended"), "{unlimited}");
}

/// A cited line is the line of a table's head in the file, for every rule of every built-in policy.
#[test]
fn every_rule_knows_its_line() {
    for (name, text) in BUILT_IN {
        let policy = Policy::parse(text).unwrap();
        let head = |line: usize| text.lines().nth(line - 1).unwrap_or_default();
        assert_eq!(head(policy.sockets.line), "[sockets]", "{name}");
        let rules = [
            ("[[path]]", policy.paths.iter().map(|rule| rule.line).collect::<Vec<_>>()),
            ("[[tcp]]", policy.tcp.iter().map(|rule| rule.line).collect()),
            ("[egress]", policy.egress.iter().map(|section| section.line).collect()),
            ("[log]", policy.log.iter().map(|section| section.line).collect()),
            ("[[scope]]", policy.scopes.iter().map(|rule| rule.line).collect()),
            ("[[socket]]", policy.sockets.allow.iter().map(|rule| rule.line).collect()),
            ("[[syscall]]", policy.syscalls.iter().map(|rule| rule.line).collect()),
            ("[[environment]]", policy.environment.iter().map(|rule| rule.line).collect()),
            ("[[rlimit]]", policy.rlimits.iter().map(|rule| rule.line).collect()),
        ];
        for (table, lines) in rules {
            assert_eq!(
                lines.len(),
                text.matches(&format!("\n{table}\n")).count(),
                "{name} {table}"
            );
            assert!(lines.windows(2).all(|pair| pair[0] < pair[1]), "{name} {table} {lines:?}");
            for line in lines {
                assert_eq!(head(line), table, "{name} line {line}");
            }
        }
    }
}

#[test]
fn strict_runs_nothing_that_can_be_written_and_reaches_no_port_of_its_own_accord() {
    let strict = Policy::parse(crate::policy::STRICT).unwrap();
    assert_eq!(strict.tier, Tier::Namespace);
    for rule in &strict.paths {
        let both = [Access::Write, Access::Execute];
        assert!(!both.iter().all(|access| rule.access.contains(access)), "line {}", rule.line);
    }
    let setting = Setting {
        connect: Some(Vec::new()),
        ports: Some(PortRange { first: 20_000, count: 4 }),
        ..Setting::symbolic(&strict)
    };
    for port in [22, 53, 80, 443, 8080] {
        for way in [Way::Connect, Way::Bind] {
            let decision = tcp(&strict, &setting, way, SocketFamily::Inet, port);
            assert_eq!(decision.outcome, Outcome::Refused, "{port}");
        }
    }
}
