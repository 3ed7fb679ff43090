//! A network that carries nothing: with a proxy on the way that cuts whoever is silent, and half open.

use std::time::{Duration, Instant};

use casemate_suite::raw_host::RawHost;

use crate::attachment::Attachment;

/// What many proxies give a silent connection.
const PATIENCE: Duration = Duration::from_secs(60);
/// A tool call of which nothing is heard.
const SILENT: &str = "!sleep 130";
/// A half-open connection is found after 60 s of silence; the rest is for a loaded machine.
const FOUND: Duration = Duration::from_secs(150);

/// Both ends' pings keep a connection through a proxy that cuts at 60 s, whatever the agent does.
pub(crate) fn a_silent_tool_call_outlives_an_impatient_proxy(attachment: Attachment<'_>) {
    let Attachment { place, detour, mut host, session } = attachment;
    let proxy = &detour.proxy;
    // A new connection, which the proxy has no patience with.
    proxy.patience(PATIENCE);
    proxy.cut();
    host.say(&session, "hello").expect("the connection comes back");
    let (before, since) = (proxy.connections(), Instant::now());
    let id = host.send("session/prompt", &RawHost::prompt(&session, SILENT));
    let answer = host.answer(id, Duration::from_secs(200)).expect("the turn ends");
    assert_eq!(answer["stopReason"], "end_turn");
    assert!(since.elapsed() > 2 * PATIENCE, "{:?}", since.elapsed());
    assert_eq!((proxy.connections(), proxy.cuts()), (before, 0), "one connection all the time");
    host.quit(place);
}

/// Neither bytes nor an end pass any more: the bridge finds out, and nothing of the turn is lost or doubled.
pub(crate) fn a_half_open_connection_is_found(attachment: Attachment<'_>) {
    let Attachment { place, detour, mut host, session } = attachment;
    let proxy = &detour.proxy;
    let before = proxy.connections();
    proxy.freeze();
    let since = Instant::now();
    let id =
        host.send("session/prompt", &RawHost::prompt(&session, "!sh echo once | tee -a prompts"));
    let answer = host.answer(id, FOUND).expect("the turn ends");
    assert_eq!(answer["stopReason"], "end_turn");
    println!("half open for {:?}", since.elapsed());
    assert!(proxy.connections() > before, "over another connection");
    let told = host.say(&session, "!sh cat prompts").expect("the last turn");
    assert_eq!(told.lines().filter(|line| *line == "once").count(), 1, "{told}");
    host.quit(place);
}
