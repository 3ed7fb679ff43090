//! The kinds of events: one constructor each, so that what an event may say is what its constructor asks for.

use serde_json::{Map, Value, json};

use super::event::{Class, Event, Severity};
use super::line::Head;
use super::verify::DROPPED;
use crate::end::EndReason;
use crate::ids::{Generation, Incarnation, SessionId};
use crate::tier::Tier;

/// Words of others (an agent's program, an error) are cut to this many bytes.
const LONGEST: usize = 512;

type Kind = (&'static str, Class, u8, &'static str);

fn event((code, class, activity, activity_name): Kind, message: impl Into<String>) -> Event {
    Event {
        code,
        class,
        activity,
        activity_name,
        severity: Severity::Informational,
        success: None,
        message: cut(message.into()),
        attributes: Map::new(),
        unmapped: Map::new(),
        count: 1,
        session: None,
    }
}

fn cut(mut text: String) -> String {
    if text.len() > LONGEST {
        let mut end = LONGEST;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

fn members(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

impl Event {
    fn severe(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    fn outcome(mut self, success: bool, detail: Option<String>) -> Self {
        self.success = Some(success);
        if let Some(detail) = detail {
            self.attributes.insert("status_detail".to_owned(), cut(detail).into());
        }
        self
    }

    fn with(mut self, attributes: Value) -> Self {
        self.attributes.extend(members(attributes));
        self
    }

    fn and(mut self, unmapped: Value) -> Self {
        self.unmapped.extend(members(unmapped));
        self
    }

    /// A program of casemate's serves: `supervisor` or `allocator`. `enforcement`: one line a mechanism, for a worker.
    #[must_use]
    pub fn started(program: &str, tier: Tier, enforcement: &[String]) -> Self {
        event(
            ("program.started", Class::ApplicationLifecycle, 3, "Start"),
            format!("casemate-{program} serves"),
        )
        .outcome(true, None)
        .with(json!({ "app": { "name": format!("casemate-{program}") } }))
        .and(json!({ "tier": tier, "enforcement": enforcement }))
    }

    /// A program of casemate's does not start. `kind` is the refusal's stable name, `message` its words.
    #[must_use]
    pub fn not_started(program: &str, kind: &str, message: &str) -> Self {
        let refusal = json!({ "app": { "name": format!("casemate-{program}") } });
        event(
            ("program.not_started", Class::ApplicationLifecycle, 3, "Start"),
            format!("casemate-{program} does not start"),
        )
        .severe(Severity::Medium)
        .outcome(false, Some(message.to_owned()))
        .with(refusal)
        .and(json!({ "refusal": kind }))
    }

    /// A program of casemate's ends in order.
    #[must_use]
    pub fn stopped(program: &str, code: u8) -> Self {
        event(
            ("program.stopped", Class::ApplicationLifecycle, 4, "Stop"),
            format!("casemate-{program} ends"),
        )
        .outcome(true, None)
        .with(json!({ "app": { "name": format!("casemate-{program}") } }))
        .and(json!({ "exit_code": code }))
    }

    /// The policy that is in force from now on, by the hash of its text.
    #[must_use]
    pub fn policy_in_force(revision: &str) -> Self {
        event(
            ("policy.in_force", Class::EntityManagement, 10, "Activate"),
            "the policy is in force",
        )
        .outcome(true, None)
        .with(json!({ "entity": { "type": "Policy", "type_id": 5, "name": "policy", "uid": revision } }))
    }

    /// Whose signatures tokens may carry from now on; public halves, no secret.
    #[must_use]
    pub fn keys_in_force(keys: &[String]) -> Self {
        event(
            ("keys.in_force", Class::EntityManagement, 10, "Activate"),
            "tokens are checked with these keys",
        )
        .outcome(true, None)
        .with(json!({ "entity": { "type": "Keys", "type_id": 99, "name": "token keys", "uid": keys.join(",") } }))
    }

    /// The skills that sessions see from now on, by the hash of their content.
    #[must_use]
    pub fn skills_in_force(revision: &str) -> Self {
        event(
            ("skills.in_force", Class::EntityManagement, 10, "Activate"),
            "the skills are in force",
        )
        .outcome(true, None)
        .with(json!({ "entity": { "type": "Skills", "type_id": 99, "name": "skills", "uid": revision } }))
    }

    /// What must be closed was not, or could not be proven to be: the probe before the first agent.
    #[must_use]
    pub fn shield_failed(message: &str) -> Self {
        finding("shield.failed", "the shield does not hold", message).severe(Severity::High)
    }

    /// The walls refused a process something: `what` in one line, `attempts` times since it was told last.
    #[must_use]
    pub fn refused(what: &str, attempts: u64) -> Self {
        finding("action.refused", "the walls refused a process something", what)
            .severe(Severity::Low)
            .outcome(false, None)
            .and(json!({ "attempts": attempts }))
    }

    /// A process was started behind the wall. `why`: `agent` or `exec`. Its arguments are not told: they may hold secrets.
    #[must_use]
    pub fn launched(why: &str, program: &str, arguments: usize, pid: i32) -> Self {
        event(
            ("process.launched", Class::ProcessActivity, 1, "Launch"),
            format!("{why}: {program} runs"),
        )
        .outcome(true, None)
        .with(process(program, pid))
        .and(json!({ "why": why, "arguments": arguments }))
    }

    /// A process could not be started behind the wall.
    #[must_use]
    pub fn not_launched(why: &str, program: &str, message: &str) -> Self {
        event(
            ("process.not_launched", Class::ProcessActivity, 1, "Launch"),
            format!("{why}: {program} does not run"),
        )
        .severe(Severity::Low)
        .outcome(false, Some(message.to_owned()))
        .with(process(program, 0))
        .and(json!({ "why": why }))
    }

    /// It ended; `code` as a shell has it (128 + the signal), none where its end was not seen.
    #[must_use]
    pub fn ended(why: &str, program: &str, pid: i32, code: Option<u8>) -> Self {
        let exit = code.map_or_else(|| json!({}), |code| json!({ "exit_code": code }));
        event(
            ("process.ended", Class::ProcessActivity, 2, "Terminate"),
            format!("{why}: {program} ended"),
        )
        .with(process(program, pid))
        .with(exit)
        .and(json!({ "why": why }))
    }

    /// A client is attached to the session.
    #[must_use]
    pub fn attached(connection: u64) -> Self {
        authentication("client.attached", (1, "Logon"), "a client is attached")
            .outcome(true, None)
            .and(json!({ "connection": connection }))
    }

    /// A client is gone, or was closed.
    #[must_use]
    pub fn detached(connection: u64) -> Self {
        authentication("client.detached", (2, "Logoff"), "a client is gone")
            .outcome(true, None)
            .and(json!({ "connection": connection }))
    }

    /// A call was turned away. `why` is one of a few fixed sentences; what was sent is not told.
    #[must_use]
    pub fn turned_away(endpoint: &str, why: &str) -> Self {
        authentication("call.refused", (1, "Logon"), "a call was refused")
            .severe(Severity::Medium)
            .outcome(false, Some(why.to_owned()))
            .and(json!({ "endpoint": cut(endpoint.to_owned()) }))
    }

    /// A caller was handed a token for a session. The token is not told.
    #[must_use]
    pub fn authorized(session: &SessionId, generation: Generation, audience: &str) -> Self {
        event(
            ("token.issued", Class::AuthorizeSession, 1, "Assign Privileges"),
            format!("a caller may attach to {session}"),
        )
        .outcome(true, None)
        .with(json!({
            "session": { "uid": session },
            "user": { "type": "Caller", "type_id": 99, "name": "holder of the allocator's token" },
            "privileges": [audience],
        }))
        .and(json!({ "of_generation": generation.0 }))
    }

    /// A session was made. The key is told by its hash alone.
    #[must_use]
    pub fn session_created(session: &SessionId, incarnation: Incarnation, key: &str) -> Self {
        about("session.created", (1, "Create"), session, "was made")
            .and(json!({ "incarnation": incarnation.0, "key": key }))
    }

    /// A session has a worker again.
    #[must_use]
    pub fn session_woken(session: &SessionId, generation: Generation) -> Self {
        about("session.woken", (13, "Resume"), session, "has a worker")
            .and(json!({ "of_generation": generation.0 }))
    }

    /// A session's worker was stopped; its files stay.
    #[must_use]
    pub fn session_stopped(session: &SessionId, reason: EndReason) -> Self {
        about("session.stopped", (12, "Suspend"), session, "sleeps")
            .and(json!({ "reason": reason }))
    }

    /// A session's incarnation has ended.
    #[must_use]
    pub fn session_closed(session: &SessionId, reason: EndReason) -> Self {
        about("session.closed", (11, "Deactivate"), session, "was closed")
            .and(json!({ "reason": reason }))
    }

    /// One session of a worker of many is over; `code` as its worker would have left with, had it been alone.
    #[must_use]
    pub fn session_over(session: &SessionId, code: u8) -> Self {
        about("session.over", (12, "Suspend"), session, "is over in this worker")
            .and(json!({ "exit_code": code }))
    }

    /// A session's files were deleted.
    #[must_use]
    pub fn session_deleted(session: &SessionId) -> Self {
        about("session.deleted", (4, "Delete"), session, "was deleted with all its files")
    }

    /// A session's worker could not be started.
    #[must_use]
    pub fn worker_not_started(session: &SessionId, kind: &str, message: &str) -> Self {
        about("worker.not_started", (13, "Resume"), session, "got no worker")
            .severe(Severity::Medium)
            .outcome(false, Some(message.to_owned()))
            .and(json!({ "refusal": kind }))
    }

    /// A session's worker ended by itself.
    #[must_use]
    pub fn worker_lost(session: &SessionId, generation: Generation) -> Self {
        about("worker.lost", (12, "Suspend"), session, "lost its worker")
            .severe(Severity::Low)
            .outcome(false, None)
            .and(json!({ "of_generation": generation.0 }))
    }

    /// Where another log stood at this moment.
    #[must_use]
    pub fn anchored(name: &str, head: Head) -> Self {
        event(
            ("log.anchored", Class::EntityManagement, 2, "Read"),
            format!("the audit log of {name} ends with number {}", head.seq),
        )
        .outcome(true, None)
        .with(
            json!({ "entity": { "type": "Audit log", "type_id": 99, "name": name, "uid": name } }),
        )
        .and(json!({ "anchor": head }))
    }

    /// The log goes on behind a last line that was not whole.
    #[must_use]
    pub fn recovered(torn_bytes: u64) -> Self {
        let message =
            format!("{torn_bytes} bytes of a line that was never finished were taken away");
        this_log("log.recovered", (3, "Update"), message)
            .severe(Severity::Low)
            .and(json!({ "torn_bytes": torn_bytes }))
    }

    /// The log's mode was another one than 0600 and was set right.
    #[must_use]
    pub fn mode_mended(mode: u32) -> Self {
        let message = format!("the log had mode {mode:o}; it is 600 again");
        this_log("log.mode_mended", (3, "Update"), message).severe(Severity::Medium)
    }

    /// The log goes on in a new file; lines up to and with number `through` are dropped with the oldest one.
    #[must_use]
    pub fn rotated(through: Option<u64>) -> Self {
        let event =
            this_log("log.rotated", (5, "Move"), "the log goes on in a new file".to_owned());
        match through {
            Some(through) => event.and(json!({ DROPPED: through })),
            None => event,
        }
    }

    /// Events that were counted and not told one by one.
    #[must_use]
    pub fn held_back(code: &str, count: u64) -> Self {
        finding("events.counted", "more of the same were only counted", code)
            .severe(Severity::Medium)
            .counted(count)
    }
}

fn process(program: &str, pid: i32) -> Value {
    let path = cut(program.to_owned());
    let name = path.rsplit('/').next().unwrap_or_default();
    json!({ "process": { "pid": pid, "name": name, "file": { "name": name, "path": path, "type_id": 1 } } })
}

fn authentication(code: &'static str, (id, name): (u8, &'static str), message: &str) -> Event {
    event((code, Class::Authentication, id, name), message).with(json!({
        "service": { "name": "casemate" },
        "user": { "type": "Unknown", "type_id": 0, "name": "caller" },
    }))
}

fn about(
    code: &'static str,
    (id, name): (u8, &'static str),
    session: &SessionId,
    what: &str,
) -> Event {
    event((code, Class::EntityManagement, id, name), format!("{session} {what}"))
        .outcome(true, None)
        .with(json!({ "entity": { "type": "Session", "type_id": 99, "name": session, "uid": session } }))
}

fn this_log(code: &'static str, (id, name): (u8, &'static str), message: String) -> Event {
    event((code, Class::EntityManagement, id, name), message)
        .outcome(true, None)
        .with(json!({ "entity": { "type": "Audit log", "type_id": 99, "name": "audit" } }))
}

fn finding(code: &'static str, title: &str, message: &str) -> Event {
    event((code, Class::DetectionFinding, 1, "Create"), format!("{title}: {message}"))
        .with(json!({ "finding_info": { "title": title, "uid": code } }))
}
