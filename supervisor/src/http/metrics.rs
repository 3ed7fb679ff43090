//! Counters, and the Prometheus text that shows them (text format version 0.0.4).

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Write as _;

use casemate_protocol::sharing::SessionSummary;
use casemate_protocol::usage::Usage;
use casemate_protocol::worker::{Activity, AgentState, WorkerStatus};

/// What is counted. Single-threaded.
#[derive(Debug, Default)]
pub struct Metrics {
    /// WebSocket attachments ever made.
    pub attachments: Cell<u64>,
    /// Lines from clients.
    pub client_lines: Cell<u64>,
    /// Lines from the agent.
    pub agent_lines: Cell<u64>,
    /// Bytes from the agent.
    pub agent_bytes: Cell<u64>,
    /// Agent output that was no JSON-RPC, or too long.
    pub agent_noise: Cell<u64>,
    /// Clients closed for not keeping up.
    pub blocked_turns: Cell<u64>,
    /// Commands of exec ever admitted.
    pub execs: Cell<u64>,
    /// Attempts on the network that the walls refused.
    pub actions_refused: Cell<u64>,
    /// Attempts that could not be read.
    pub actions_unread: Cell<u64>,
}

/// Adds to a counter.
pub fn add(counter: &Cell<u64>, amount: u64) {
    counter.set(counter.get().saturating_add(amount));
}

/// What the audit log lacks.
#[must_use]
pub fn audit_lost(events: u64) -> String {
    format!(
        "# HELP casemate_audit_lost_total Events that the audit log had no room for.\n\
         # TYPE casemate_audit_lost_total counter\ncasemate_audit_lost_total {events}\n"
    )
}

// === impl Metrics ===

impl Metrics {
    /// Adds what an ended session has counted, so that a sum over sessions never falls.
    pub fn absorb(&self, ended: &Self) {
        add(&self.attachments, ended.attachments.get());
        add(&self.client_lines, ended.client_lines.get());
        add(&self.agent_lines, ended.agent_lines.get());
        add(&self.agent_bytes, ended.agent_bytes.get());
        add(&self.agent_noise, ended.agent_noise.get());
        add(&self.blocked_turns, ended.blocked_turns.get());
        add(&self.execs, ended.execs.get());
        add(&self.actions_refused, ended.actions_refused.get());
        add(&self.actions_unread, ended.actions_unread.get());
    }

    /// The text.
    #[must_use]
    pub fn render(
        &self,
        status: &WorkerStatus,
        refused: u64,
        orphans: u64,
        uptime_ms: u64,
    ) -> String {
        let mut text = String::with_capacity(2048);
        let mut line = |name: &str, kind: &str, help: &str, value: u64| {
            metric(&mut text, name, kind, help, value);
        };
        let running = matches!(status.agent, AgentState::Running { .. });
        let (busy, idle_ms) = match status.activity {
            Activity::Busy { .. } => (1, 0),
            Activity::Idle { for_ms } => (0, for_ms),
            Activity::Quiesced => (0, 0),
        };
        line("generation", "gauge", "Generation of this worker.", status.generation.0);
        line("uptime_seconds", "gauge", "Seconds since the worker serves.", uptime_ms / 1000);
        line("agent_running", "gauge", "1 while the agent's process lives.", running.into());
        line("busy", "gauge", "1 while a turn runs or waits, or a command of exec runs.", busy);
        line("idle_seconds", "gauge", "Seconds of idleness, 0 while busy.", idle_ms / 1000);
        line("attached", "gauge", "Connected clients.", status.attachments.into());
        line("execs", "gauge", "Commands of exec that run.", status.execs.into());
        self.counters(&mut line, refused, orphans);
        bounds(&mut line, &status.usage);
        policies(&mut text, [status.policy_revision.as_str()]);
        text
    }

    /// The text of a worker of many sessions: sums, so that it does not grow with them, and a line for each policy in force.
    #[must_use]
    pub fn render_shared(
        &self,
        sessions: &[SessionSummary],
        refused: u64,
        orphans: u64,
        uptime_ms: u64,
    ) -> String {
        let mut text = String::with_capacity(2048);
        let mut line = |name: &str, kind: &str, help: &str, value: u64| {
            metric(&mut text, name, kind, help, value);
        };
        let count = |holds: &dyn Fn(&SessionSummary) -> bool| {
            sessions.iter().filter(|session| holds(session)).count() as u64
        };
        let running =
            |session: &SessionSummary| matches!(session.agent, AgentState::Running { .. });
        let busy =
            |session: &SessionSummary| matches!(session.activity, Some(Activity::Busy { .. }));
        let attached = sessions.iter().map(|session| u64::from(session.attachments)).sum();
        line("uptime_seconds", "gauge", "Seconds since the worker serves.", uptime_ms / 1000);
        line("sessions", "gauge", "Sessions hosted.", sessions.len() as u64);
        line("agents_running", "gauge", "Agents whose process lives.", count(&running));
        line("sessions_busy", "gauge", "Sessions with a turn or a command of exec.", count(&busy));
        line("attached", "gauge", "Connected clients.", attached);
        self.counters(&mut line, refused, orphans);
        policies(&mut text, sessions.iter().filter_map(|it| it.policy_revision.as_deref()));
        text
    }

    fn counters(&self, line: &mut dyn FnMut(&str, &str, &str, u64), refused: u64, orphans: u64) {
        let mut line = |name, help, value| line(name, "counter", help, value);
        line("attachments_total", "Attachments ever made.", self.attachments.get());
        line("execs_total", "Commands of exec ever admitted.", self.execs.get());
        line("refused_total", "Calls refused for token or origin.", refused);
        line("client_lines_total", "Lines from clients.", self.client_lines.get());
        line("agent_lines_total", "Lines from the agent.", self.agent_lines.get());
        line("agent_bytes_total", "Bytes from the agent.", self.agent_bytes.get());
        line("agent_noise_total", "Agent lines not relayed.", self.agent_noise.get());
        line(
            "blocked_turns_total",
            "Turns cancelled since nobody took what the agent said.",
            self.blocked_turns.get(),
        );
        line("actions_refused_total", "Connects and binds refused.", self.actions_refused.get());
        line("actions_unread_total", "Connects and binds not read.", self.actions_unread.get());
        line(
            "own_calls_refused_total",
            "System calls that the supervisor's own filter refused it.",
            casemate_sandbox::shield::refused_calls(),
        );
        line("orphans_reaped_total", "Orphaned processes reaped.", orphans);
    }
}

/// One number, as Prometheus reads it.
fn metric(text: &mut String, name: &str, kind: &str, help: &str, value: u64) {
    let _ = write!(
        text,
        "# HELP casemate_{name} {help}\n# TYPE casemate_{name} {kind}\ncasemate_{name} {value}\n"
    );
}

/// One line for each revision, however many sessions have it: a label's value, as Prometheus shows what is no number; hex
/// digits need no escapes.
fn policies<'a>(text: &mut String, revisions: impl IntoIterator<Item = &'a str>) {
    text.push_str(
        "# HELP casemate_policy_info The policy in force, by the hash of its text.\n\
         # TYPE casemate_policy_info gauge\n",
    );
    for revision in revisions.into_iter().collect::<BTreeSet<_>>() {
        let _ = writeln!(text, "casemate_policy_info{{revision=\"{revision}\"}} 1");
    }
}

fn bounds(line: &mut dyn FnMut(&str, &str, &str, u64), usage: &Usage) {
    line("processes", "gauge", "Processes of the session.", usage.processes.into());
    line("tasks", "gauge", "Processes and threads of the session.", usage.tasks.into());
    line("tasks_peak", "gauge", "The most of them so far.", usage.peak_tasks.into());
    let disk = usage.disk.as_ref();
    for (name, help, value) in [
        ("tasks_limit", "The most it may have.", usage.tasks_limit.map(u64::from)),
        ("disk_bytes", "Bytes on disk, when last measured.", disk.map(|disk| disk.bytes)),
        ("files", "Files and directories, when last measured.", disk.map(|disk| disk.files)),
        ("disk_limit_bytes", "The most bytes it may take.", usage.disk_limit),
        ("files_limit", "The most files it may have.", usage.files_limit),
        ("volume_free_bytes", "Bytes left on the volume.", usage.volume_free),
        ("volume_free_files", "Files the volume has room for.", usage.volume_free_files),
    ] {
        if let Some(value) = value {
            line(name, "gauge", help, value);
        }
    }
}
