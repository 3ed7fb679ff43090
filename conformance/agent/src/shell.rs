//! `sh -c` with its output streamed while it runs, killed as a process group on cancel.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::turn::Cancel;

/// How long output is waited for once the shell has ended: a background process may hold the pipe open for ever.
const DRAIN: Duration = Duration::from_millis(200);

/// `exit N` or `signal N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended(ExitStatus);

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.code(), self.0.signal()) {
            (Some(code), _) => write!(f, "exit {code}"),
            (None, Some(signal)) => write!(f, "signal {signal}"),
            (None, None) => f.write_str("ended"),
        }
    }
}

/// Runs `command`, giving stdout and stderr to `say` in the order in which they were written.
pub(crate) fn run(
    command: &str,
    cwd: &str,
    cancel: &Cancel,
    mut say: impl FnMut(&str),
) -> io::Result<Ended> {
    let (reader, writer) = io::pipe()?;
    let mut child = Command::new("sh")
        .args(["-c", command])
        .current_dir(cwd)
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0)
        .spawn()?;
    let output = read_on_a_thread(reader);
    let mut text = Utf8Tail::default();
    let mut ended: Option<(ExitStatus, Instant)> = None;
    loop {
        match output.recv_timeout(Duration::from_millis(10)) {
            Ok(bytes) => {
                if let Some(text) = text.take(&bytes) {
                    say(&text);
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                if ended.is_some_and(|(_, since)| since.elapsed() > DRAIN) {
                    break;
                }
            }
        }
        if cancel.is_asked() {
            kill_group(&child);
        }
        if ended.is_none() {
            ended = child.try_wait()?.map(|status| (status, Instant::now()));
        }
    }
    if let Some(rest) = text.rest() {
        say(&rest);
    }
    match ended {
        Some((status, _)) => Ok(Ended(status)),
        None => wait(&mut child, cancel),
    }
}

/// The shell closed its output and still runs.
fn wait(child: &mut Child, cancel: &Cancel) -> io::Result<Ended> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended(status));
        }
        if cancel.wait(Duration::from_millis(10)) {
            kill_group(child);
        }
    }
}

fn kill_group(child: &Child) {
    if let Ok(group) = i32::try_from(child.id()) {
        // Fails only where the group is gone already.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}

fn read_on_a_thread(mut reader: io::PipeReader) -> Receiver<Vec<u8>> {
    let (to, output) = channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 16 * 1024];
        while let Ok(count @ 1..) = reader.read(&mut buffer) {
            if to.send(buffer[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    output
}

/// Keeps the bytes of a character that a read cut in two.
#[derive(Debug, Default)]
struct Utf8Tail(Vec<u8>);

// === impl Utf8Tail ===

impl Utf8Tail {
    fn take(&mut self, bytes: &[u8]) -> Option<String> {
        self.0.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.0) {
            Ok(_) => self.0.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => self.0.len(),
        };
        let tail = self.0.split_off(whole);
        let text = String::from_utf8_lossy(&std::mem::replace(&mut self.0, tail)).into_owned();
        (!text.is_empty()).then_some(text)
    }

    fn rest(&mut self) -> Option<String> {
        let text = String::from_utf8_lossy(&std::mem::take(&mut self.0)).into_owned();
        (!text.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(command: &str) -> (String, String) {
        let mut said = String::new();
        let ended = run(command, "/", &Cancel::default(), |text| said.push_str(text)).unwrap();
        (said, ended.to_string())
    }

    #[test]
    fn output_and_the_exit_code_arrive() {
        assert_eq!(sh("echo out; echo err >&2; exit 3"), ("out\nerr\n".into(), "exit 3".into()));
        assert_eq!(sh("kill -9 $$").1, "signal 9");
    }

    #[test]
    fn a_background_process_does_not_hold_the_turn() {
        let start = Instant::now();
        let (said, ended) = sh("sleep 30 & echo $!");
        assert_eq!(ended, "exit 0");
        assert!(start.elapsed() < Duration::from_secs(10));
        killpg_of(said.trim());
    }

    fn killpg_of(pid: &str) {
        let _ = nix::sys::signal::kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL);
    }

    #[test]
    fn a_cancel_ends_the_command() {
        let cancel = Cancel::default();
        cancel.ask();
        let start = Instant::now();
        let ended = run("sleep 30", "/", &cancel, |_| ()).unwrap();
        assert_eq!(ended.to_string(), "signal 9");
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_character_cut_by_a_read_is_put_together() {
        let mut tail = Utf8Tail::default();
        let bytes = "漢".as_bytes();
        assert_eq!(tail.take(&bytes[..1]), None);
        assert_eq!(tail.take(&bytes[1..]), Some("漢".into()));
        assert_eq!(tail.rest(), None);
    }
}
