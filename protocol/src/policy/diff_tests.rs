//! What is a difference between two policies and what is not; no rule that is built in is idle.

use super::*;
use crate::policy::{Access, BUILT_IN, DEVELOPER, STRICT};

const FRAME: &str = "version = 1\nname = \"t\"\n[landlock]\nabi = 6\nreason = \"r\"\n\
                     [sockets]\nerrno = \"EACCES\"\nreason = \"r\"\n";

fn policy(rules: &str) -> Policy {
    Policy::parse(&format!("{FRAME}{rules}")).unwrap()
}

fn texts(found: &[Difference]) -> Vec<&str> {
    found.iter().map(|one| one.text.as_str()).collect()
}

fn call(names: &str, errno: &str, when: &str) -> String {
    format!(
        "[[syscall]]\nnames = [{names}]\nerrno = \"{errno}\"\nwhen = [{when}]\nreason = \"r\"\n"
    )
}

#[test]
fn a_policy_is_no_different_from_itself_in_other_words() {
    let one = Policy::parse(DEVELOPER).unwrap();
    assert!(Diff::between(&one, &one).is_empty());
    let bits =
        |value: &str| format!("{{ arg = 0, bits = 64, op = \"any-bits\", value = {value} }}");
    let one = policy(&call("\"clone\", \"unshare\"", "EPERM", &bits("0x30")));
    let other = [
        call("\"unshare\"", "EPERM", &bits("0x30")),
        call("\"clone\"", "EPERM", &bits("0x10")),
        call("\"clone\"", "EPERM", &bits("0x20")),
    ];
    assert!(Diff::between(&one, &policy(&other.concat())).is_empty());
    let path =
        |path: &str| format!("[[path]]\npath = \"{path}\"\naccess = [\"read\"]\nreason = \"r\"\n");
    let narrower = format!("{}{}", path("/usr"), path("/usr/lib"));
    assert!(Diff::between(&policy(&path("/usr")), &policy(&narrower)).is_empty());
}

#[test]
fn every_kind_of_rule_is_compared_both_ways() {
    let kinds = [
        (
            "path",
            "[[path]]\npath = \"/x\"\naccess = [\"write\", \"read\"]\nreason = \"r\"\n",
            "read, write /x",
        ),
        ("tcp", "[[tcp]]\nconnect = [80]\nreason = \"r\"\n", "connect 80"),
        ("tcp", "[[tcp]]\nbind = [\"{ports}\"]\nreason = \"r\"\n", "bind {ports}"),
        (
            "socket",
            "[[socket]]\nfamily = \"inet\"\ntypes = [\"dgram\"]\nprotocols = [17]\ncalls = [\"socket\"]\nreason = \"r\"\n",
            "socket inet dgram, protocol 17",
        ),
        ("environment", "[[environment]]\npass = [\"A\"]\nreason = \"r\"\n", "A, passed on"),
        ("bounds", "[bounds]\nprocesses = 4000\nreason = \"r\"\n", "processes 4000"),
        ("bounds", "[bounds]\ndisk = \"1TiB\"\nreason = \"r\"\n", "disk 1TiB"),
        ("bounds", "[bounds]\nfiles = \"unlimited\"\nreason = \"r\"\n", "files unlimited"),
    ];
    for (kind, rule, text) in kinds {
        let diff = Diff::between(&policy(""), &policy(rule));
        let line = Some(FRAME.lines().count() + 1);
        assert_eq!(diff.only_b, [Difference { kind, text: text.to_owned(), line }]);
        assert!(diff.only_a.is_empty() && diff.otherwise.is_empty());
        let turned = Diff::between(&policy(rule), &policy(""));
        assert_eq!((turned.only_a, turned.only_b), (diff.only_b, Vec::new()));
    }
    // Rules that take away.
    let kinds = [
        (
            "scope",
            "[[scope]]\nkind = \"signal\"\nreason = \"r\"\n".to_owned(),
            "signals to processes outside the session",
        ),
        (
            "rlimit",
            "[[rlimit]]\nresource = \"core\"\nsoft = 0\nhard = 0\nreason = \"r\"\n".to_owned(),
            "core no limit",
        ),
        ("syscall", call("\"bpf\"", "EPERM", ""), "bpf, which A refuses in line 9"),
    ];
    for (kind, rule, text) in kinds {
        let diff = Diff::between(&policy(&rule), &policy(""));
        assert_eq!(diff.only_b, [Difference { kind, text: text.to_owned(), line: None }]);
        assert!(diff.only_a.is_empty());
    }
}

#[test]
fn a_narrower_test_of_an_argument_is_found() {
    let test =
        |bits, op, value| format!("{{ arg = 1, bits = {bits}, op = \"{op}\", value = {value} }}");
    let cases = [
        (test(64, "any-bits", 3), test(64, "any-bits", 1)),
        (test(32, "equal", 5), test(64, "equal", 5)),
        (test(32, "less", 9), test(32, "less", 8)),
        (test(32, "not-equal", 0), test(32, "equal", 1)),
    ];
    for (wide, narrow) in cases {
        let (a, b) = (
            policy(&call("\"ioctl\"", "EPERM", &wide)),
            policy(&call("\"ioctl\"", "EPERM", &narrow)),
        );
        let diff = Diff::between(&a, &b);
        assert_eq!((diff.only_a.len(), diff.only_b.len()), (0, 1), "{wide} {narrow} {diff:?}");
    }
    let (a, b) = (policy(&call("\"bpf\"", "EPERM", "")), policy(&call("\"bpf\"", "ENOSYS", "")));
    assert_eq!(texts(&Diff::between(&a, &b).otherwise), ["bpf gets EPERM in A, ENOSYS in B"]);
}

#[test]
fn strict_is_narrower_than_developer_in_everything() {
    let (strict, developer) = (Policy::parse(STRICT).unwrap(), Policy::parse(DEVELOPER).unwrap());
    let diff = Diff::between(&developer, &strict);
    assert_eq!(diff.only_b, []);
    assert_eq!(diff.otherwise, []);
    let lost = texts(&diff.only_a);
    for one in [
        "execute {work}",
        "connect 443",
        "a worker of tier domain",
        "read /etc",
        "RES_OPTIONS, \"use-vc\"",
    ] {
        assert!(lost.contains(&one), "{one} not in {lost:#?}");
    }
    let calls = |name: &str| lost.iter().any(|text| text.starts_with(name));
    assert!(calls("memfd_create, which B refuses") && calls("syslog, which B"), "{lost:#?}");
}

/// Every rule of a policy, taken out alone.
fn without_each(policy: &Policy) -> Vec<(usize, Policy)> {
    let mut all = Vec::new();
    let mut add = |line: usize, change: &dyn Fn(&mut Policy)| {
        let mut without = policy.clone();
        change(&mut without);
        all.push((line, without));
    };
    for (index, rule) in policy.paths.iter().enumerate() {
        add(rule.line, &|policy| drop(policy.paths.remove(index)));
    }
    for (index, rule) in policy.tcp.iter().enumerate() {
        add(rule.line, &|policy| drop(policy.tcp.remove(index)));
    }
    for (index, rule) in policy.scopes.iter().enumerate() {
        add(rule.line, &|policy| drop(policy.scopes.remove(index)));
    }
    for (index, rule) in policy.sockets.allow.iter().enumerate() {
        add(rule.line, &|policy| drop(policy.sockets.allow.remove(index)));
    }
    for (index, rule) in policy.syscalls.iter().enumerate() {
        add(rule.line, &|policy| drop(policy.syscalls.remove(index)));
    }
    for (index, rule) in policy.environment.iter().enumerate() {
        add(rule.line, &|policy| drop(policy.environment.remove(index)));
    }
    for (index, rule) in policy.rlimits.iter().enumerate() {
        add(rule.line, &|policy| drop(policy.rlimits.remove(index)));
    }
    all
}

fn idle(policy: &Policy) -> Vec<usize> {
    let without = without_each(policy).into_iter();
    without.filter(|(_, one)| Diff::between(policy, one).is_empty()).map(|(line, _)| line).collect()
}

#[test]
fn no_rule_of_a_built_in_policy_is_idle() {
    for (name, text) in BUILT_IN {
        let policy = Policy::parse(text).unwrap();
        assert_eq!(without_each(&policy).len(), policy.rule_count());
        assert_eq!(idle(&policy), Vec::<usize>::new(), "{name}");
    }
    // That idle ones would be seen.
    let rules = [
        "[[path]]\npath = \"/usr/lib\"\naccess = [\"read\"]\nreason = \"r\"\n",
        "[[syscall]]\nnames = [\"setns\"]\nerrno = \"EPERM\"\nreason = \"r\"\n",
        "[[tcp]]\nconnect = [443]\nreason = \"r\"\n",
    ];
    for rule in rules {
        let policy = Policy::parse(&format!("{DEVELOPER}\n{rule}")).unwrap();
        assert!(!idle(&policy).is_empty(), "{rule}");
    }
}

#[test]
fn rights_of_a_weaker_tier_are_more() {
    let rule = "[[path]]\npath = \"/dev/shm\"\naccess = [\"read\"]\nreason = \"r\"\n";
    let later = format!("{rule}tier = \"namespace\"\n");
    let (a, b) = (policy(&later), policy(rule));
    let diff = Diff::between(&a, &b);
    assert_eq!((texts(&diff.only_a), texts(&diff.only_b)), (vec![], vec!["read /dev/shm"]));
    assert_eq!(diff.only_b[0].kind, "path");
    let access = Access::ALL.map(|access| access.to_string());
    assert_eq!(access, ["read", "execute", "write", "device"]);
}

/// A comparison of each rule with each other one would take minutes here.
#[test]
fn ten_thousand_rules_are_compared() {
    let rules: String = (0..10_000)
        .map(|n| format!("[[path]]\npath = \"/p/{n}\"\naccess = [\"read\"]\nreason = \"r\"\n"))
        .collect();
    let many = policy(&rules);
    assert!(Diff::between(&many, &many).is_empty());
    let diff = Diff::between(&policy(""), &many);
    assert_eq!((diff.only_a.len(), diff.only_b.len()), (0, 10_000));
    assert_eq!(diff.only_b[9_999].text, "read /p/9999");
}

#[test]
fn whether_one_may_learn_is_a_difference() {
    let not = DEVELOPER.replacen("version = 1\n", "version = 1\nlearning = \"forbidden\"\n", 1);
    let diff = Diff::between(&Policy::parse(DEVELOPER).unwrap(), &Policy::parse(&not).unwrap());
    assert_eq!((diff.only_b.len(), diff.otherwise.len()), (0, 0));
    assert_eq!(texts(&diff.only_a), ["a run with the walls open, to learn"]);
}

#[test]
fn whether_refusals_are_told_is_a_difference() {
    let quiet = DEVELOPER.replacen("version = 1\n", "version = 1\ndenials = \"quiet\"\n", 1);
    let quiet = Policy::parse(&quiet).unwrap();
    let diff = Diff::between(&Policy::parse(DEVELOPER).unwrap(), &quiet);
    assert_eq!(diff.otherwise.len(), 1);
    assert_eq!(diff.otherwise[0].text, "refusals are told in A, quiet in B");
}

/// Each key of the format that decides something, changed alone. Not here: `version`, `name` and `reason`, which decide nothing.
#[test]
fn each_key_that_decides_something_is_compared() {
    let rules = r#"denials = "told"
[[path]]
path = "/x"
access = ["read"]
required = true
tier = "domain"
[[tcp]]
connect = [80]
bind = [81]
[[scope]]
kind = "signal"
[[syscall]]
names = ["ptrace"]
errno = "EPERM"
when = [{ arg = 0, bits = 64, op = "equal", value = 1 }]
[[socket]]
family = "inet"
types = ["dgram"]
protocols = [17]
calls = ["socket"]
tier = "domain"
abi = 8
[[environment]]
pass = ["A"]
set = { B = "b" }
[[rlimit]]
resource = "nofile"
soft = 64
hard = 128
[log]
what = ["seccomp"]
required = true
[bounds]
processes = 100
disk = "1GiB"
files = 1000
"#;
    let udp = "[[udp]]\nconnect = [82]\nbind = [83]\n[[socket]]\nfamily = \"inet\"\n\
               types = [\"dgram\"]\nprotocols = [17]\ncalls = [\"socket\"]\n";
    let parse = |rules: &str, abi: u32| {
        let head = "version = 1\nname = \"t\"\ntier = \"domain\"\n";
        let tail = format!("[landlock]\nabi = {abi}\n[sockets]\nerrno = \"EACCES\"\n");
        let mut table = String::new();
        for line in format!("{head}{rules}{tail}").lines() {
            if line.starts_with('[') && !table.is_empty() {
                table.push_str("reason = \"r\"\n");
            }
            table.push_str(line);
            table.push('\n');
        }
        table.push_str("reason = \"r\"\n");
        // The head is no table and has no reason.
        Policy::parse(&table.replacen("reason = \"r\"\n", "", 1))
            .unwrap_or_else(|error| panic!("{error}\n{table}"))
    };
    for (from, to) in [
        ("denials = \"told\"", "denials = \"quiet\""),
        ("path = \"/x\"", "path = \"/y\""),
        ("access = [\"read\"]", "access = [\"read\", \"write\"]"),
        ("required = true\ntier = \"domain\"", "tier = \"domain\""),
        ("required = true\ntier = \"domain\"", "required = true\ntier = \"namespace\""),
        ("connect = [80]", "connect = [90]"),
        ("bind = [81]", "bind = [91]"),
        ("kind = \"signal\"", "kind = \"abstract-unix-socket\""),
        ("names = [\"ptrace\"]", "names = [\"kcmp\"]"),
        ("errno = \"EPERM\"", "errno = \"ENOSYS\""),
        ("arg = 0", "arg = 1"),
        ("bits = 64, op = \"equal\"", "bits = 32, op = \"equal\""),
        ("op = \"equal\"", "op = \"not-equal\""),
        ("value = 1", "value = 2"),
        ("family = \"inet\"", "family = \"inet6\""),
        ("types = [\"dgram\"]", "types = [\"stream\"]"),
        ("protocols = [17]", "protocols = [0]"),
        ("calls = [\"socket\"]", "calls = [\"socketpair\"]"),
        ("tier = \"domain\"\nabi", "tier = \"namespace\"\nabi"),
        ("abi = 8", "abi = 9"),
        ("pass = [\"A\"]", "pass = [\"C\"]"),
        ("B = \"b\"", "B = \"c\""),
        ("resource = \"nofile\"", "resource = \"core\""),
        ("soft = 64", "soft = 32"),
        ("hard = 128", "hard = 256"),
        ("what = [\"seccomp\"]", "what = [\"seccomp\", \"landlock\"]"),
        ("required = true\n[bounds]", "[bounds]"),
        ("processes = 100", "processes = 101"),
        ("disk = \"1GiB\"", "disk = \"2GiB\""),
        ("files = 1000", "files = 1001"),
    ] {
        changed(&|text| parse(text, 7), rules, from, to);
    }
    for (from, to) in [("connect = [82]", "connect = [92]"), ("bind = [83]", "bind = [93]")] {
        changed(&|text| parse(text, 10), udp, from, to);
    }
    changed(&|text| parse(text, 6), "[egress]\nmode = \"open\"\n", "open", "none");
}

fn changed(parse: &dyn Fn(&str) -> Policy, rules: &str, from: &str, to: &str) {
    assert_eq!(rules.matches(from).count(), 1, "{from}");
    let (whole, other) = (parse(rules), parse(&rules.replacen(from, to, 1)));
    assert!(Diff::between(&whole, &parse(rules)).is_empty());
    for (a, b) in [(&whole, &other), (&other, &whole)] {
        assert!(!Diff::between(a, b).is_empty(), "{from} and {to}");
    }
}
