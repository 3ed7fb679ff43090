//! What a policy file may say, and what each refusal looks like to the person who wrote it.

use proptest::prelude::*;

use super::*;

pub(super) const FRAME: &str = r#"version = 1
name = "test"
[landlock]
abi = 6
reason = "r"
[sockets]
errno = "EACCES"
reason = "r"
"#;

fn parse(rules: &str) -> Result<Policy, PolicyError> {
    Policy::parse(&format!("{FRAME}{rules}"))
}

/// The refusal's text; its line is counted in `rules`, from 1.
fn refusal(rules: &str) -> (usize, String) {
    let error = parse(rules).expect_err("the policy was accepted");
    let (line, _) = error.position.expect("the error has no position");
    (line - FRAME.lines().count(), error.message)
}

#[test]
fn the_built_in_policy_is_valid_and_every_rule_says_why() {
    let policy = Policy::parse(DEVELOPER).unwrap();
    assert_eq!(policy.name, "developer");
    assert_eq!(policy.tier, Tier::Domain);
    assert!(policy.rule_count() > 60);
    let again = Policy::parse(DEVELOPER).unwrap();
    assert_eq!(policy.revision, again.revision);
}

#[test]
fn the_revision_is_the_hash_of_the_text() {
    let one = parse("").unwrap().revision;
    assert_eq!(one.len(), 64);
    // A comment changes what an operator reviewed, so it changes the revision.
    assert_ne!(one, parse("# comment\n").unwrap().revision);
    let empty_hash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_ne!(one, empty_hash);
}

#[test]
fn an_unknown_field_is_named_with_its_place_and_the_known_ones() {
    let (line, message) =
        refusal("[[path]]\npath = \"/x\"\naccess = [\"read\"]\nreason = \"r\"\nacess = 1\n");
    assert_eq!(line, 5);
    assert!(message.contains("unknown field `acess`"), "{message}");
    assert!(message.contains("`access`") && message.contains("correct its name"), "{message}");
    let error = Policy::parse(&format!("verison = 1\n{FRAME}")).unwrap_err();
    assert_eq!(error.position, Some((1, 1)));
    assert!(error.to_string().starts_with("line 1 column 1: unknown field `verison`"), "{error}");
}

#[test]
fn every_kind_of_rule_needs_a_reason() {
    let rules = [
        "[[path]]\npath = \"/x\"\naccess = [\"read\"]\n",
        "[[tcp]]\nconnect = [1]\n",
        "[[scope]]\nkind = \"signal\"\n",
        "[[syscall]]\nnames = [\"bpf\"]\nerrno = \"EPERM\"\n",
        "[[socket]]\nfamily = \"unix\"\ntypes = [\"stream\"]\nprotocols = [0]\n",
        "[[environment]]\npass = [\"A\"]\n",
        "[[rlimit]]\nresource = \"core\"\nsoft = 0\nhard = 0\n",
    ];
    for rule in rules {
        parse(&format!("{rule}reason = \"r\"\n")).unwrap();
        let (line, message) = refusal(rule);
        assert_eq!(line, 1, "{rule}");
        assert!(message.starts_with("missing field `reason`: add reason"), "{message}");
        let (line, message) = refusal(&format!("{rule}reason = \" \"\n"));
        assert_eq!(line, rule.lines().count() + 1);
        assert!(message.contains("the reason is empty"), "{message}");
    }
    for table in ["[landlock]\nabi = 6\n", "[sockets]\nerrno = \"EACCES\"\n"] {
        let without = FRAME.replace(&format!("{table}reason = \"r\"\n"), table);
        assert!(Policy::parse(&without).unwrap_err().message.contains("missing field `reason`"));
    }
}

#[test]
fn a_socket_rule_applies_to_its_calls_from_its_tier_and_abi_on() {
    let rule = |lines: &str| {
        let rule = format!(
            "[[socket]]\nfamily = \"unix\"\ntypes = [\"stream\"]\nprotocols = [0]\n{lines}reason = \"r\"\n"
        );
        parse(&rule).unwrap().sockets
    };
    let (one, pair) = (SocketCall::Socket, SocketCall::Socketpair);
    let (domain, namespace) = (Tier::Domain, Tier::Namespace);
    let cases = [
        ("", vec![(one, domain, 6), (pair, domain, 6), (one, namespace, 6)], vec![]),
        ("calls = [\"socketpair\"]\n", vec![(pair, domain, 6)], vec![(one, Tier::Pod, 9)]),
        (
            "tier = \"namespace\"\n",
            vec![(one, namespace, 6), (pair, Tier::Pod, 6)],
            vec![(one, domain, 9)],
        ),
        ("abi = 9\n", vec![(one, domain, 9), (one, domain, 10)], vec![(one, namespace, 8)]),
        (
            "abi = 9\ntier = \"namespace\"\n",
            vec![(one, namespace, 9)],
            vec![(one, namespace, 8), (one, domain, 9)],
        ),
    ];
    for (lines, applies, does_not) in cases {
        let rules = rule(lines);
        for (call, tier, abi) in applies {
            assert_eq!(rules.allowing(call, tier, abi).count(), 1, "{lines} {call:?} {tier} {abi}");
        }
        for (call, tier, abi) in does_not {
            assert_eq!(rules.allowing(call, tier, abi).count(), 0, "{lines} {call:?} {tier} {abi}");
        }
    }
}

#[test]
fn wrong_values_name_the_fix() {
    let path =
        |path: &str| format!("[[path]]\npath = \"{path}\"\naccess = [\"read\"]\nreason = \"r\"\n");
    let when = |when: &str| {
        format!(
            "[[syscall]]\nnames = [\"ioctl\"]\nerrno = \"EPERM\"\nwhen = [{{ {when} }}]\nreason = \"r\"\n"
        )
    };
    let tcp = |connect: &str| format!("[[tcp]]\nconnect = [{connect}]\nreason = \"r\"\n");
    let socket = |line: &str| {
        format!(
            "[[socket]]\nfamily = \"unix\"\ntypes = [\"stream\"]\nprotocols = [0]\n{line}\nreason = \"r\"\n"
        )
    };
    let set = |set: &str| format!("[[environment]]\nset = {{ {set} }}\nreason = \"r\"\n");
    let cases = [
        (path("usr"), 2, "begin it with /"),
        (path("{wrok}"), 2, "there is no placeholder {wrok}"),
        (path("{work"), 2, "close it with }"),
        (path("{work}x"), 2, "put a / after the placeholder"),
        (path("/a/{work}"), 2, "only be at the beginning"),
        (path("/a/../b"), 2, "contains . or .."),
        (path("/a\\u0000"), 2, "NUL"),
        (path("/run/secrets"), 2, "which lie in /run/secrets, and no agent may have those"),
        (path("/var/run/secrets/x/token"), 2, "which lie in /var/run/secrets"),
        (path("/casemate/source"), 2, "which lie in /casemate"),
        (path("/a").replace("[\"read\"]", "[]"), 3, "access is empty"),
        (path("/a").replace("[\"read\"]", "[\"read\", \"read\"]"), 3, "a right twice"),
        (path("/a").replace("read", "reed"), 3, "unknown variant `reed`"),
        (format!("{}{}", path("/a"), path("/a")), 6, "named in line 10 already"),
        (tcp("65536"), 2, "not a port"),
        (tcp("-1"), 2, "not a port"),
        (tcp("\"{port}\""), 2, "not a port"),
        ("[[tcp]]\nreason = \"r\"\n".to_owned(), 1, "names no port"),
        (when("arg = 6, bits = 32, op = \"equal\", value = 0"), 4, "arguments 0 to 5"),
        (when("arg = 1, bits = 16, op = \"equal\", value = 0"), 4, "bits is 32"),
        (
            when("arg = 1, bits = 32, op = \"equal\", value = 0x100000000"),
            4,
            "does not fit 32 bits",
        ),
        (when("arg = 1, bits = 32, op = \"masked-equal\", value = 1"), 4, "needs a mask"),
        (
            when("arg = 1, bits = 32, op = \"masked-equal\", value = 3, mask = 1"),
            4,
            "never matches",
        ),
        (when("arg = 1, bits = 32, op = \"equal\", value = 3, mask = 1"), 4, "remove it"),
        (when("arg = 1, bits = 32, op = \"any-bits\", value = 0"), 4, "never matches"),
        (when("arg = 1, bits = 32, op = \"is\", value = 0"), 4, "unknown variant `is`"),
        (
            "[[syscall]]\nnames = [\"socket\"]\nerrno = \"EPERM\"\nreason = \"r\"\n".to_owned(),
            2,
            "use [[socket]]",
        ),
        (socket("calls = []"), 5, "name one"),
        (socket("calls = [\"socket\", \"socket\"]"), 5, "once at most"),
        (socket("calls = [\"accept\"]"), 5, "unknown variant `accept`"),
        (socket("tier = \"tier\""), 5, "unknown variant `tier`"),
        (
            when(&["arg = 1, bits = 32, op = \"equal\", value = 0"; 17].join(" }, { ")),
            4,
            "split the rule",
        ),
        (set("A = \"{work\""), 2, "lone brace"),
        (set("A = \"work}\""), 2, "lone brace"),
        (set("A = \"{wrok}\""), 2, "no placeholder {wrok}"),
        (set("\"A B\" = \"x\""), 2, "not a variable's name"),
        (format!("{}{}", set("A = \"1\""), set("A = \"2\"")), 5, "variable A was named"),
        (
            "[[rlimit]]\nresource = \"core\"\nsoft = 2\nhard = 1\nreason = \"r\"\n".to_owned(),
            3,
            "above the hard one",
        ),
        (
            "[[rlimit]]\nresource = \"core\"\nsoft = \"none\"\nhard = 1\nreason = \"r\"\n"
                .to_owned(),
            3,
            "\"unlimited\"",
        ),
        ("[[scope]]\nkind = \"signals\"\nreason = \"r\"\n".to_owned(), 2, "unknown variant"),
        ("[[path]\n".to_owned(), 1, ""),
    ];
    for (rules, line, part) in cases {
        let (found, message) = refusal(&rules);
        assert!(message.contains(part), "{rules}\n{message}");
        assert_eq!(found, line, "{rules}\n{message}");
    }
}

#[test]
fn another_version_is_refused() {
    let error = Policy::parse(&FRAME.replace("version = 1", "version = 2")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 1 column 11: this casemate reads policy version 1: write version = 1"
    );
}

#[test]
fn an_abi_below_what_the_rules_need_is_refused() {
    let scope = "[[scope]]\nkind = \"signal\"\nreason = \"r\"\n";
    for (abi, rules, needed) in [(5, scope, 6), (3, "", 4)] {
        let text = format!("{}{rules}", FRAME.replace("abi = 6", &format!("abi = {abi}")));
        let error = Policy::parse(&text).unwrap_err();
        assert_eq!(error.position, Some((4, 7)));
        assert!(error.message.contains(&format!("write abi = {needed}")), "{error}");
    }
}

#[test]
fn negative_numbers_are_twos_complement_of_the_argument() {
    let when = |bits| {
        let text = format!(
            "[[syscall]]\nnames = [\"openat\"]\nerrno = \"EPERM\"\n\
             when = [{{ arg = 0, bits = {bits}, op = \"equal\", value = -100 }}]\nreason = \"r\"\n"
        );
        parse(&text).unwrap().syscalls[0].when[0].comparison
    };
    assert_eq!(when(32), Comparison::Equal(0xffff_ff9c));
    assert_eq!(when(64), Comparison::Equal(0xffff_ffff_ffff_ff9c));
}

#[test]
fn columns_count_characters() {
    let (line, column) = error::position("é = 1\nüx", "é = 1\nü".len());
    assert_eq!((line, column), (2, 2));
}

#[test]
fn ten_thousand_rules_are_read() {
    let rules: String = (0..10_000)
        .map(|n| {
            format!("[[path]]\npath = \"/p/{n}\"\naccess = [\"read\"]\nreason = \"rule {n}\"\n")
        })
        .collect();
    let policy = parse(&rules).unwrap();
    assert_eq!(policy.paths.len(), 10_000);
    assert_eq!(policy.paths[9_999].line, FRAME.lines().count() + 4 * 9_999 + 1);
    let (line, message) = refusal(&format!(
        "{rules}[[path]]\npath = \"/p/0\"\naccess = [\"read\"]\nreason = \"r\"\n"
    ));
    assert_eq!(line, 40_002);
    assert!(message.contains("already"), "{message}");
}

/// Pieces of policies, so that random texts get past the TOML reader and into the checks.
const PIECES: [&str; 29] = [
    "[[path]]\n",
    "path = \"/a\"\n",
    "path = \"{wörk}/x\"\n",
    "access = [\"read\"]\n",
    "access = []\n",
    "reason = \"r\"\n",
    "reason = \" \"\n",
    "[[tcp]]\n",
    "connect = [1, -1, \"{ports}\"]\n",
    "bind = [65536]\n",
    "[[syscall]]\n",
    "names = [\"é\", \"socket\"]\n",
    "errno = \"EPERM\"\n",
    "when = [{ arg = 9, bits = 32, op = \"equal\", value = -5 }]\n",
    "when = [{ arg = 1, bits = 64, op = \"masked-equal\", value = 1, mask = -1 }]\n",
    "[[socket]]\n",
    "family = \"unix\"\ntypes = [\"raw\"]\nprotocols = [0]\n",
    "[[environment]]\n",
    "set = { A = \"{{}\" }\n",
    "pass = [\"A\", \"A\"]\n",
    "[[rlimit]]\n",
    "resource = \"core\"\nsoft = 2\nhard = 1\n",
    "[egress]\nmode = \"allow-list\"\n",
    "[[host]]\nnames = [\"*.é.example\", \"[::1]:443\", \"]:[\"]\n",
    "[egress]\nmode = \"none\"\n",
    "[[udp]]\nbind = [0]\n",
    "[log]\nwhat = [\"landlock\"]\nrequired = true\n",
    "# ü\r\n",
    "\u{0}",
];

/// An error lies within the text: in a line that it has, at most one column behind that line's end.
fn is_within(text: &str, error: &PolicyError) -> bool {
    let Some((line, column)) = error.position else { return true };
    let length = text.split('\n').nth(line.wrapping_sub(1)).map(|line| line.chars().count());
    length.is_some_and(|length| (1..=length + 1).contains(&column))
}

/// As many as `PROPTEST_CASES` asks for, and no fewer than that.
fn at_least(cases: u32) -> ProptestConfig {
    let asked = ProptestConfig::default();
    ProptestConfig { cases: asked.cases.max(cases), ..asked }
}

proptest! {
    #![proptest_config(at_least(512))]

    #[test]
    fn any_text_is_read_or_refused_at_a_place_within_it(text in "(?s).{0,300}") {
        if let Err(error) = Policy::parse(&text) {
            prop_assert!(is_within(&text, &error), "{error}");
        }
    }

    #[test]
    fn any_mixture_of_pieces_is_read_or_refused_within_it(
        is_framed in any::<bool>(),
        pieces in proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..24),
    ) {
        let text = format!("{}{}", if is_framed { FRAME } else { "" }, pieces.concat());
        if let Err(error) = Policy::parse(&text) {
            prop_assert!(is_within(&text, &error), "{text}\n{error}");
            prop_assert!(!error.message.is_empty());
        }
    }

    /// Several cuts, repetitions and insertions at once, in each built-in policy.
    #[test]
    fn a_mangled_policy_is_read_or_refused_within_it(
        which in 0..BUILT_IN.len(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), 0..80_usize, 0..3_u8, proptest::sample::select(&PIECES[..])), 1..6),
    ) {
        let mut text: Vec<char> = BUILT_IN[which].1.chars().collect();
        for (at, length, kind, piece) in edits {
            let at = at.index(text.len());
            let end = (at + length).min(text.len());
            match kind {
                0 => {
                    text.drain(at..end);
                },
                1 => {
                    text.splice(at..at, piece.chars());
                }
                _ => {
                    let copy = text[at..end].to_vec();
                    text.splice(at..at, copy);
                }
            }
            text.push('\n');
        }
        let text: String = text.into_iter().collect();
        if let Err(error) = Policy::parse(&text) {
            prop_assert!(is_within(&text, &error), "{error}");
        }
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,400}") {
        // Only that it returns: whether it is a policy is not the question.
        prop_assert!(Policy::parse(&text).is_err());
    }

    #[test]
    fn damage_to_the_built_in_policy_never_panics(at in 0..DEVELOPER.len(), with in "[\\[\\]{}\"=,a0\n#]{0,3}") {
        let mut text = DEVELOPER.to_owned();
        let at = (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.insert_str(at, &with);
        if let Ok(policy) = Policy::parse(&text) {
            prop_assert!(policy.paths.iter().all(|rule| !rule.reason.trim().is_empty()));
        }
    }
}
