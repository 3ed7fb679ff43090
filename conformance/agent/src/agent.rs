//! The agent's side of ACP: which request does what, and which sessions there are.

use std::collections::HashMap;
use std::io::BufRead;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::history::History;
use crate::turn::{Cancel, Stop, Turn};
use crate::verb;
use crate::wire::Wire;

const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL: i64 = -32603;
const RESOURCE_NOT_FOUND: i64 = -32002;

const MODES: [&str; 2] = ["default", "strict"];

/// A refused request: code and words.
type Refusal = (i64, String);

/// A session that this process knows.
#[derive(Debug)]
struct Session {
    cwd: String,
    mode: &'static str,
    /// The running turn's cancel.
    turn: Option<Arc<Cancel>>,
}

/// The sessions and what they are served with.
#[derive(Clone)]
pub(crate) struct Agent {
    wire: Wire,
    history: History,
    sessions: Arc<Mutex<HashMap<String, Session>>>,
}

// === impl Agent ===

impl Agent {
    pub(crate) fn new(wire: Wire) -> Self {
        Self { wire, history: History::below_home(), sessions: Arc::default() }
    }

    /// Reads until the end of stdin. Turns that still run end with the process.
    pub(crate) fn serve(&self, input: impl BufRead) -> u8 {
        for line in input.split(b'\n') {
            let line = match line {
                Ok(line) => line,
                Err(error) => {
                    eprintln!("scripted agent: stdin: {error}");
                    return 1;
                }
            };
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match serde_json::from_slice::<Value>(&line) {
                Ok(message) => self.take(&message),
                Err(error) => self.wire.refuse(&Value::Null, -32700, &error.to_string()),
            }
        }
        0
    }

    fn take(&self, message: &Value) {
        let Some(method) = message["method"].as_str() else {
            self.wire.settle(message);
            return;
        };
        let params = &message["params"];
        match message.get("id") {
            None => {
                if method == "session/cancel" {
                    self.cancel(params);
                }
            }
            Some(id) if method == "session/prompt" => self.prompt(id, params),
            Some(id) => match self.call(method, params) {
                Ok(result) => self.wire.answer(id, &result),
                Err((code, message)) => self.wire.refuse(id, code, &message),
            },
        }
    }

    fn call(&self, method: &str, params: &Value) -> Result<Value, Refusal> {
        match method {
            "initialize" => Ok(json!({
                "protocolVersion": 1,
                "agentCapabilities": {
                    "loadSession": true,
                    "promptCapabilities": {"embeddedContext": true},
                    "sessionCapabilities": {"resume": {}},
                },
                "agentInfo": {
                    "name": "casemate-scripted-agent",
                    "title": "casemate scripted agent",
                    "version": env!("CARGO_PKG_VERSION"),
                },
                "authMethods": [],
            })),
            "session/new" => {
                let id = new_id();
                self.history
                    .create(&id)
                    .map_err(|error| (INTERNAL, format!("history: {error}")))?;
                let mode = self.open(&id, params)?;
                Ok(json!({"sessionId": id, "modes": modes(mode)}))
            }
            "session/load" | "session/resume" => {
                let id = session_id(params)?;
                if !self.history.exists(id) {
                    return Err((RESOURCE_NOT_FOUND, format!("no session `{id}`")));
                }
                let mode = self.open(id, params)?;
                if method == "session/load" {
                    let updates = self.history.read(id);
                    for update in updates.map_err(|error| (INTERNAL, error.to_string()))? {
                        let params = json!({"sessionId": id, "update": update});
                        self.wire.notify("session/update", &params);
                    }
                }
                Ok(json!({"modes": modes(mode)}))
            }
            "session/set_mode" => {
                let id = session_id(params)?;
                let wanted = params["modeId"].as_str().unwrap_or_default();
                let mode = MODES.iter().find(|mode| **mode == wanted);
                let mode = mode.ok_or_else(|| (INVALID_PARAMS, format!("no mode `{wanted}`")))?;
                self.with(id, |session| session.mode = mode)?;
                let update = json!({"sessionUpdate": "current_mode_update", "currentModeId": mode});
                let params = json!({"sessionId": id, "update": update});
                self.wire.notify("session/update", &params);
                Ok(json!({}))
            }
            _ => Err((METHOD_NOT_FOUND, format!("no method `{method}`"))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens or finds a session; returns its mode.
    fn open(&self, id: &str, params: &Value) -> Result<&'static str, Refusal> {
        let cwd = params["cwd"].as_str().filter(|cwd| cwd.starts_with('/'));
        let cwd = cwd.ok_or_else(|| (INVALID_PARAMS, "cwd must be an absolute path".to_owned()))?;
        let mut sessions = self.lock();
        let session = sessions.entry(id.to_owned()).or_insert_with(|| Session {
            cwd: String::new(),
            mode: MODES[0],
            turn: None,
        });
        cwd.clone_into(&mut session.cwd);
        Ok(session.mode)
    }

    fn with<T>(&self, id: &str, f: impl FnOnce(&mut Session) -> T) -> Result<T, Refusal> {
        let mut sessions = self.lock();
        let session = sessions.get_mut(id);
        session.map(f).ok_or_else(|| (RESOURCE_NOT_FOUND, format!("session `{id}` is not open")))
    }

    fn cancel(&self, params: &Value) {
        let turn = session_id(params).and_then(|id| self.with(id, |session| session.turn.clone()));
        if let Ok(Some(turn)) = turn {
            turn.ask();
        }
    }

    /// Starts a turn on a thread of its own; answers when it ends.
    fn prompt(&self, id: &Value, params: &Value) {
        match self.begin(params) {
            Err((code, message)) => self.wire.refuse(id, code, &message),
            Ok((turn, verb)) => {
                let agent = self.clone();
                let id = id.clone();
                std::thread::spawn(move || agent.finish(&id, &turn, verb));
            }
        }
    }

    fn begin(&self, params: &Value) -> Result<(Turn, verb::Verb), Refusal> {
        let session = session_id(params)?;
        let verb = verb::choose(&params["prompt"]).map_err(|message| (INVALID_PARAMS, message))?;
        let cancel = Arc::new(Cancel::default());
        let cwd = self.with(session, |open| {
            // A client that sends a second prompt during a turn is to notice.
            if open.turn.is_some() {
                return Err((INVALID_REQUEST, "a turn is running already".to_owned()));
            }
            open.turn = Some(Arc::clone(&cancel));
            Ok(open.cwd.clone())
        })??;
        let turn = Turn {
            wire: self.wire.clone(),
            history: self.history.clone(),
            session: session.to_owned(),
            cwd,
            cancel,
        };
        for block in params["prompt"].as_array().into_iter().flatten() {
            let update = json!({"sessionUpdate": "user_message_chunk", "content": block});
            if let Err(error) = self.history.append(session, &update) {
                eprintln!("scripted agent: history of {session}: {error}");
            }
        }
        Ok((turn, verb))
    }

    fn finish(&self, id: &Value, turn: &Turn, verb: verb::Verb) {
        let stop = turn.work(verb);
        // Cleared before the answer: the client may prompt again as soon as it has that.
        let _ = self.with(&turn.session, |session| session.turn = None);
        let cancelled = matches!(stop, Stop::Cancelled | Stop::Late { cancelled: true, .. });
        let reason = if cancelled { "cancelled" } else { "end_turn" };
        self.wire.answer(id, &json!({"stopReason": reason}));
        if let Stop::Late { count, .. } = stop {
            for index in 1..=count {
                turn.say(&format!("late {index}"));
            }
        }
    }
}

fn session_id(params: &Value) -> Result<&str, Refusal> {
    params["sessionId"].as_str().ok_or_else(|| (INVALID_PARAMS, "sessionId is missing".to_owned()))
}

fn modes(current: &str) -> Value {
    let available: Vec<Value> =
        MODES.iter().map(|mode| json!({"id": mode, "name": mode})).collect();
    json!({"currentModeId": current, "availableModes": available})
}

/// Unique over the processes that share a HOME: time, process and a counter within one nanosecond.
fn new_id() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("scripted-{now:x}-{}-{count}", std::process::id())
}
