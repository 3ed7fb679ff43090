//! A real API server, by whatever command reaches one.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Runs kubectl on an object; what it said.
pub(crate) fn kubectl(arguments: &[&str], object: &Value) -> Result<String, String> {
    let command =
        std::env::var("CASEMATE_KUBECTL").expect("CASEMATE_KUBECTL says how to reach a cluster");
    let mut words = command.split_whitespace();
    let mut child = Command::new(words.next().expect("a program"))
        .args(words)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("kubectl starts");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(object.to_string().as_bytes())
        .expect("kubectl reads");
    let output = child.wait_with_output().expect("kubectl ends");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() { Ok(said) } else { Err(said) }
}
