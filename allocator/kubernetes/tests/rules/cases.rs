//! Objects, each one step from one that is admitted.

use serde_json::{Value, json};

/// What becomes of it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Expected {
    /// It is taken.
    Admitted,
    /// The one rule with this in its message refuses it.
    Rule(&'static str),
    /// The API server refuses it for its form; true: reading it is an error as well.
    Form(bool),
}

/// One object.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) what: &'static str,
    pub(crate) old: Option<Value>,
    pub(crate) new: Value,
    pub(crate) expected: Expected,
}

impl Case {
    pub(crate) fn kind(&self) -> &str {
        self.new["kind"].as_str().expect("a kind")
    }
}

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const SESSION: &str = "s-aaaaaaaaaaaaaaaaaaaaaaaaaa";
const OTHER_SESSION: &str = "s-bbbbbbbbbbbbbbbbbbbbbbbbbb";
const SLOT: &str = "w-aaaaaaaaaaaaaaaaaaaaaaaaaa";
const OTHER_SLOT: &str = "w-bbbbbbbbbbbbbbbbbbbbbbbbbb";

/// A profile that says no more than it must.
pub(crate) fn profile() -> Value {
    json!({
        "apiVersion": "casemate.dev/v1alpha1",
        "kind": "WorkerProfile",
        "metadata": {"name": "default"},
        "spec": {
            "image": {"reference": format!("registry.example/worker@{DIGEST}")},
            "agent": {"name": "opencode", "command": ["opencode", "acp"]},
            "resources": {"limits": {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "4Gi"}},
            "storage": {"new": {"size": "10Gi"}},
        },
    })
}

/// A session whose worker serves.
pub(crate) fn session() -> Value {
    json!({
        "apiVersion": "casemate.dev/v1alpha1",
        "kind": "WorkerSession",
        "metadata": {"name": "k-aaaaaaaaaaaaaaaaaaaaaaaaaa"},
        "spec": {
            "key": {"tenant": "t", "agent": "opencode", "platform": "slack", "thread": "1"},
            "incarnation": 2,
            "session": SESSION,
            "generation": 5,
            "phase": "Active",
            "profile": {"name": "default", "uid": "u1", "generation": 1},
            "terms": {"tier": "pod", "sharing": "session", "idle": "30m", "attempts": 3, "reset": {}},
            "slot": {"name": SLOT, "podUid": "p1"},
            "volume": {"mode": "New", "claim": SLOT, "uid": "v1"},
            "served": true,
        },
    })
}

/// Sets the field at a path (`/a/b`), making what is on the way; `null` removes it.
fn with(mut object: Value, path: &str, value: Value) -> Value {
    let mut place = &mut object["spec"];
    let mut parts: Vec<&str> = path.split('/').skip(1).collect();
    let last = parts.pop().expect("a path");
    for part in parts {
        place = match part.parse::<usize>() {
            Ok(index) => &mut place[index],
            Err(_) => &mut place[part],
        };
    }
    if value.is_null() {
        place.as_object_mut().expect("a parent").remove(last);
    } else {
        place[last] = value;
    }
    object
}

fn shared(more: Value) -> Value {
    let mut one = json!({
        "name": "data", "claimName": "data", "mountPath": "/data", "use": "ReadOnly", "reason": "test data",
    });
    for (name, value) in more.as_object().expect("fields") {
        one[name] = value.clone();
    }
    one
}

fn profiles() -> Vec<Case> {
    use Expected::{Admitted, Form, Rule};
    let of = |what, path: &str, value, expected| Case {
        what,
        old: None,
        new: with(profile(), path, value),
        expected,
    };
    let user = |object| with(with(object, "/sharing", json!("user")), "/tier", json!("domain"));
    let two = |what, paths: [(&str, Value); 2], expected| {
        let new =
            paths.into_iter().fold(profile(), |object, (path, value)| with(object, path, value));
        Case { what, old: None, new, expected }
    };
    vec![
        Case { what: "the least profile", old: None, new: profile(), expected: Admitted },
        of(
            "a tag",
            "/image/reference",
            json!("registry.example/worker:1"),
            Rule("a tag moves, and a session"),
        ),
        two(
            "a tag that is asked for",
            [("/image/reference", json!("worker:1")), ("/image/allowTag", json!(true))],
            Admitted,
        ),
        of(
            "a tag of the supervisor's image",
            "/image/supervisor",
            json!("supervisor:1"),
            Rule("a tag moves: name"),
        ),
        of(
            "an image by half a digest",
            "/image/reference",
            json!("worker@sha256:0123"),
            Form(true),
        ),
        of(
            "no memory limit",
            "/resources/limits",
            json!({"ephemeral-storage": "1Gi"}),
            Rule("without a limit"),
        ),
        of(
            "no limit for the node's disk",
            "/resources/limits",
            json!({"memory": "1Gi"}),
            Rule("without a limit"),
        ),
        of(
            "a request above its limit",
            "/resources/requests",
            json!({"memory": "4097Mi"}),
            Rule("above its limit"),
        ),
        of(
            "a request below its limit",
            "/resources/requests",
            json!({"memory": "4096Mi", "cpu": "250m"}),
            Admitted,
        ),
        of(
            "a limit of a resource without a name",
            "/resources/limits",
            json!({"a b": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}),
            Rule("does not match ^([a-z0-9]["),
        ),
        of("a negative quantity", "/resources/limits/cpu", json!("-1"), Form(true)),
        of(
            "two kinds of storage",
            "/storage",
            json!({"new": {"size": "1Gi"}, "ephemeral": {"size": "1Gi"}}),
            Form(true),
        ),
        of("no kind of storage", "/storage", json!({}), Form(true)),
        of("a command of no word", "/agent/command", json!([]), Form(false)),
        of("a variable that is none", "/agent/env", json!({"A=b": "c"}), Form(true)),
        of("a setup step", "/agent/setup", json!([{"setMode": {"modeId": "code"}}]), Admitted),
        of("a user's Pod in tier pod", "/sharing", json!("user"), Rule("set `tier: domain`")),
        of("a session's Pod in tier domain", "/tier", json!("domain"), Rule("set `tier: pod`")),
        Case { what: "a user's Pod", old: None, new: user(profile()), expected: Admitted },
        Case {
            what: "a pool of users' Pods",
            old: None,
            new: with(user(profile()), "/pool", json!(1)),
            expected: Rule("a slot is a user's"),
        },
        of("a pool", "/pool", json!(3), Admitted),
        of("a pool above the capacity", "/pool", json!(51), Rule("warm slots count as active")),
        two(
            "a pool on one volume",
            [("/pool", json!(1)), ("/storage", json!({"borrowed": {"claimName": "c"}}))],
            Rule("a borrowed volume is one"),
        ),
        two(
            "a pool that holds what is exclusive",
            [("/pool", json!(1)), ("/shared", json!([shared(json!({"use": "Exclusive"}))]))],
            Rule("would hold an exclusive resource"),
        ),
        two(
            "two volumes at one place",
            [
                ("/shared", json!([shared(json!({})), shared(json!({"name": "b"}))])),
                ("/pool", json!(0)),
            ],
            Rule("have one `mountPath`"),
        ),
        of(
            "a shared volume without rules",
            "/shared",
            json!([shared(json!({"use": "Shared"}))]),
            Rule("what is written where"),
        ),
        of(
            "a shared volume",
            "/shared",
            json!([shared(json!({"use": "Shared", "paths": [{"path": "/", "access": "Read"}]}))]),
            Admitted,
        ),
        of(
            "rules for what is read-only",
            "/shared",
            json!([shared(json!({"paths": [{"path": "/", "access": "ReadWrite"}]}))]),
            Rule("what is written where"),
        ),
        of(
            "a volume over the worktree",
            "/shared",
            json!([shared(json!({"mountPath": "/work"}))]),
            Rule("casemate's own or the system's"),
        ),
        of(
            "a volume in the supervisor's state",
            "/shared",
            json!([shared(json!({"mountPath": "/casemate/x"}))]),
            Rule("casemate's own or the system's"),
        ),
        of(
            "a volume that climbs",
            "/shared",
            json!([shared(json!({"mountPath": "/data/../work"}))]),
            Form(true),
        ),
        of(
            "a default workspace that is none",
            "/defaultWorkspace",
            json!("app"),
            Rule("names none of `workspaces`"),
        ),
        two(
            "a default workspace",
            [
                ("/workspaces", json!({"app": {"repository": "https://git.example/app.git"}})),
                ("/defaultWorkspace", json!("app")),
            ],
            Admitted,
        ),
        of(
            "a repository with a password",
            "/workspaces",
            json!({"app": {"repository": "https://u:p@git.example/app.git"}}),
            Form(true),
        ),
        of(
            "an alias with a slash",
            "/workspaces",
            json!({"a/b": {"repository": "https://git.example/a"}}),
            Rule("does not match ^[a-z0-9](["),
        ),
        of(
            "a fresh worktree in the same incarnation",
            "/reset",
            json!({"worktree": "fresh"}),
            Rule("a fresh worktree needs"),
        ),
        of(
            "a fresh worktree",
            "/reset",
            json!({"worktree": "fresh", "incarnation": "next"}),
            Admitted,
        ),
        of(
            "a tenant above all",
            "/capacity",
            json!({"active": 5, "activePerTenant": 6}),
            Rule("more than all"),
        ),
        of(
            "the metadata service",
            "/network",
            json!({"egress": {"to": [{"cidr": "169.254.169.254/32"}]}}),
            Rule("link-local addresses"),
        ),
        of(
            "a range with the metadata service in it",
            "/network",
            json!({"egress": {"to": [{"cidr": "0.0.0.0/0"}]}}),
            Rule("link-local addresses"),
        ),
        of(
            "link-local addresses of version 6",
            "/network",
            json!({"egress": {"to": [{"cidr": "fe80::/64"}]}}),
            Rule("link-local addresses"),
        ),
        of(
            "a private range of version 6",
            "/network",
            json!({"egress": {"to": [{"cidr": "fd00::/8"}]}}),
            Admitted,
        ),
        of(
            "open, and yet a list",
            "/network",
            json!({"egress": {"open": true, "to": [{"cidr": "10.0.0.0/8"}]}}),
            Rule("reaches every public address"),
        ),
        of(
            "a destination that is two",
            "/network",
            json!({"egress": {"to": [{"cidr": "10.0.0.0/8", "pods": {"a": "b"}}]}}),
            Rule("either a range"),
        ),
        of(
            "a destination that is none",
            "/network",
            json!({"egress": {"to": [{"ports": [{"port": 1}]}]}}),
            Rule("either a range"),
        ),
        of(
            "a destination",
            "/network",
            json!({"egress": {"to": [{"namespaces": {}, "ports": [{"port": 443}]}]}}),
            Admitted,
        ),
        of(
            "every Pod as a caller",
            "/network",
            json!({"callers": [{"pods": {}}]}),
            Rule("more than a caller"),
        ),
        of(
            "a caller",
            "/network",
            json!({"callers": [{"namespaces": {"a": "b"}, "pods": {"app": "openab"}}]}),
            Admitted,
        ),
        of(
            "a proxy with a password",
            "/network",
            json!({"proxy": {"url": "http://u:p@proxy:3128"}}),
            Form(true),
        ),
        of("root", "/pod", json!({"userIds": {"fixed": {"uid": 0, "gid": 1}}}), Form(false)),
        of(
            "whatever the platform assigns",
            "/pod",
            json!({"userIds": {"assigned": {}}, "hostUsers": false}),
            Admitted,
        ),
        of("no time at all", "/lifetime", json!({"idle": "0s"}), Form(true)),
        of(
            "a policy without its revision",
            "/policy",
            json!({"configMap": {"name": "p"}}),
            Form(true),
        ),
        of(
            "a policy by revision",
            "/policy",
            json!({"configMap": {"name": "p", "revision": DIGEST}}),
            Admitted,
        ),
        of(
            "skills by a tag",
            "/skills",
            json!({"content": {"imageVolume": {"reference": "skills:1"}}}),
            Form(true),
        ),
        of(
            "skills by digest",
            "/skills",
            json!({"content": {"imageVolume": {"reference": format!("skills@{DIGEST}")}}}),
            Admitted,
        ),
        of(
            "a secret for a header",
            "/credentials",
            json!([{"secret": {"name": "s", "key": "k"}, "for": {"route": {"host": "api.example", "header": "Authorization", "prefix": "Bearer "}}}]),
            Admitted,
        ),
        of(
            "somebody who may use it",
            "/use",
            json!([{"serviceAccount": {"namespace": "chat", "name": "openab"}}]),
            Admitted,
        ),
        of(
            "an identity of two kinds",
            "/use",
            json!([{"user": {"name": "a"}, "group": {"name": "b"}}]),
            Form(true),
        ),
    ]
}

fn sessions() -> Vec<Case> {
    use Expected::{Admitted, Form, Rule};
    let made = |what, path: &str, value, expected| Case {
        what,
        old: None,
        new: with(session(), path, value),
        expected,
    };
    let change = |what, changes: Vec<(&str, Value)>, expected| {
        let new =
            changes.into_iter().fold(session(), |object, (path, value)| with(object, path, value));
        Case { what, old: Some(session()), new, expected }
    };
    let next = |more: Vec<(&'static str, Value)>| {
        let mut changes = vec![
            ("/incarnation", json!(3)),
            ("/session", json!(OTHER_SESSION)),
            ("/generation", json!(6)),
        ];
        changes.extend(more);
        changes
    };
    let ended = || with(with(session(), "/phase", json!("Ended")), "/slot", Value::Null);
    let kept = json!([{"incarnation": 2, "session": SESSION, "volume": {"mode": "New", "claim": SLOT, "uid": "v1"}}]);
    // The next incarnation of a session that has ended and whose volume is still there.
    let after = |what, more: Vec<(&'static str, Value)>, expected| {
        let mut changes = next(vec![
            ("/volume", Value::Null),
            ("/kept", kept.clone()),
            ("/slot", json!({"name": OTHER_SLOT})),
            ("/phase", json!("Starting")),
        ]);
        changes.extend(more);
        let new =
            changes.into_iter().fold(ended(), |object, (path, value)| with(object, path, value));
        Case { what, old: Some(ended()), new, expected }
    };
    let ending = || json!({"reason": "idle", "close": false});
    let mut by_hand = session();
    by_hand["metadata"]["name"] = json!("my-session");
    let host = "k-bbbbbbbbbbbbbbbbbbbbbbbbbb";
    vec![
        Case { what: "a session", old: None, new: session(), expected: Admitted },
        Case {
            what: "a session by hand",
            old: None,
            new: by_hand,
            expected: Rule("name follows from its key"),
        },
        change("nothing", vec![], Admitted),
        change("another key", vec![("/key/thread", json!("2"))], Rule("its key's for ever")),
        change(
            "an older generation",
            vec![("/generation", json!(4))],
            Rule("a generation never falls"),
        ),
        change(
            "an older incarnation",
            vec![("/incarnation", json!(1)), ("/session", json!(OTHER_SESSION))],
            Rule("number never falls"),
        ),
        change(
            "a new id in the same incarnation",
            vec![("/session", json!(OTHER_SESSION))],
            Rule("one session id of its own"),
        ),
        change(
            "the next id in the same incarnation",
            vec![("/session", json!(OTHER_SESSION)), ("/generation", json!(6))],
            Rule("one session id of its own"),
        ),
        after(
            "the next incarnation under the old id",
            vec![("/session", json!(SESSION))],
            Rule("one session id of its own"),
        ),
        after("the next incarnation", vec![], Admitted),
        change(
            "the next incarnation while the former goes on",
            next(vec![
                ("/volume", Value::Null),
                ("/kept", kept.clone()),
                ("/phase", json!("Starting")),
            ]),
            Rule("begins once the former has ended"),
        ),
        after(
            "an incarnation that is left out",
            vec![("/incarnation", json!(4))],
            Rule("begins once the former has ended"),
        ),
        after(
            "an incarnation that begins with its end",
            vec![("/phase", json!("Asleep"))],
            Rule("begins once the former has ended"),
        ),
        after(
            "a former volume that is forgotten",
            vec![("/kept", Value::Null)],
            Rule("it goes on in `kept`"),
        ),
        after(
            "a former volume under another incarnation",
            vec![("/kept/0/incarnation", json!(1))],
            Rule("it goes on in `kept`"),
        ),
        Case {
            what: "a borrowed volume goes back",
            old: Some(with(ended(), "/volume/mode", json!("Borrowed"))),
            new: after("", vec![("/kept", Value::Null)], Admitted).new,
            expected: Admitted,
        },
        Case {
            what: "a kept volume that is forgotten",
            old: Some(with(session(), "/kept", kept.clone())),
            new: session(),
            expected: Rule("forgotten only after its deletion was decided"),
        },
        Case {
            what: "a kept volume that was deleted",
            old: Some(with(
                with(session(), "/kept", kept.clone()),
                "/kept/0/secondsLeft",
                json!(0),
            )),
            new: session(),
            expected: Admitted,
        },
        Case {
            what: "serving without a start",
            old: Some(with(session(), "/phase", json!("Asleep"))),
            new: session(),
            expected: Rule("goes from Asleep to Starting"),
        },
        change(
            "an end without a stop",
            vec![("/phase", json!("Ended"))],
            Rule("goes from Asleep to Starting"),
        ),
        change(
            "a digest that is none",
            vec![(
                "/requests",
                json!([{"id": "r", "digest": "x", "session": SESSION, "created": true}]),
            )],
            Form(true),
        ),
        Case {
            what: "an ended incarnation goes on",
            old: Some(ended()),
            new: with(session(), "/generation", json!(6)),
            expected: Rule("does not go on"),
        },
        change("other terms", vec![("/terms/idle", json!("1m"))], Rule("keeps the terms")),
        change(
            "another profile",
            vec![("/profile/generation", json!(2))],
            Rule("applies at the next incarnation"),
        ),
        after(
            "other terms and profile at the next incarnation",
            vec![("/terms/idle", json!("1m")), ("/profile/generation", json!(2))],
            Admitted,
        ),
        change("another volume", vec![("/volume/uid", json!("v2"))], Rule("never exchanged")),
        change(
            "another class of storage",
            vec![("/volume/class", json!("fast"))],
            Rule("never exchanged"),
        ),
        Case {
            what: "a volume that nobody worked in",
            old: Some(with(with(session(), "/served", json!(false)), "/phase", json!("Starting"))),
            new: with(
                with(
                    with(with(session(), "/served", json!(false)), "/phase", json!("Starting")),
                    "/volume",
                    Value::Null,
                ),
                "/slot/podUid",
                Value::Null,
            ),
            expected: Admitted,
        },
        change(
            "a volume that is forgotten",
            vec![("/volume", Value::Null)],
            Rule("is not forgotten"),
        ),
        Case {
            what: "a volume that goes with its incarnation",
            old: Some(with(session(), "/phase", json!("Asleep"))),
            new: with(ended(), "/volume", Value::Null),
            expected: Admitted,
        },
        change(
            "another slot for the same worker",
            vec![("/slot", json!({"name": OTHER_SLOT}))],
            Rule("another slot is another worker"),
        ),
        change(
            "another slot",
            vec![("/slot", json!({"name": OTHER_SLOT})), ("/generation", json!(6))],
            Admitted,
        ),
        change(
            "another Pod for the same worker",
            vec![("/slot/podUid", json!("p2"))],
            Rule("another Pod is another worker"),
        ),
        change(
            "another Pod",
            vec![("/slot/podUid", json!("p2")), ("/generation", json!(6))],
            Admitted,
        ),
        made("a guest with a slot", "/host", json!(host), Rule("has no slot of its own")),
        change("no compute while active", vec![("/slot", Value::Null)], Rule("says where")),
        change("asleep", vec![("/slot", Value::Null), ("/phase", json!("Asleep"))], Admitted),
        change(
            "stopping without a reason",
            vec![("/phase", json!("Stopping"))],
            Rule("says how it ends"),
        ),
        change("stopping", vec![("/phase", json!("Stopping")), ("/ending", ending())], Admitted),
        Case {
            what: "a start to look",
            old: Some(with(session(), "/phase", json!("Asleep"))),
            new: with(
                with(with(session(), "/phase", json!("Starting")), "/ending", ending()),
                "/generation",
                json!(6),
            ),
            expected: Admitted,
        },
        change("a reason without stopping", vec![("/ending", ending())], Rule("says how it ends")),
        made(
            "an unknown reason",
            "/lastEnd",
            json!({"reason": "bored", "at": "2026-01-01T00:00:00Z"}),
            Form(true),
        ),
        made("incarnation zero", "/incarnation", json!(0), Form(false)),
        made("a slot's name of the caller's", "/slot", json!({"name": "w-mine"}), Form(true)),
        made("a session's id of the caller's", "/session", json!("s-../../etc"), Form(true)),
        made("a tenant without a name", "/key/tenant", json!(""), Form(false)),
    ]
}

/// All of them.
pub(crate) fn all() -> Vec<Case> {
    let mut all = profiles();
    all.extend(sessions());
    all
}
