//! The proxy before a plain server that remembers what it has done.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::upstream::Upstream;
use super::{ApiProxy, Armed, Fault, Watches};

/// Answers each request with what it was, one a connection, and a watch with four events.
struct Server {
    address: SocketAddr,
    done: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let done = Arc::new(Mutex::new(Vec::new()));
        let of_thread = Arc::clone(&done);
        // It ends with the tests' process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serve(stream, &of_thread);
            }
        });
        Self { address, done }
    }

    fn done(&self) -> Vec<String> {
        self.done.lock().expect("nobody panicked").clone()
    }
}

fn serve(mut stream: TcpStream, done: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let Some(line) = head.lines().next() else { return };
    let what = line.trim_end_matches(" HTTP/1.1").to_owned();
    let body = if what.contains("watch=true") {
        (1..=4).map(|number| format!("{{\"type\":\"ADDED\",\"object\":{number}}}\n")).collect()
    } else {
        what.clone()
    };
    done.lock().expect("nobody panicked").push(what);
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .ok();
}

/// A client's request: all that came back before the end, or within ten seconds.
fn ask(proxy: &ApiProxy, what: &str) -> String {
    let mut stream = TcpStream::connect(proxy.address()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
    write!(
        stream,
        "{what} HTTP/1.1\r\nHost: api\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
    .expect("it reads");
    let mut said = Vec::new();
    let mut piece = [0; 1024];
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        said.extend_from_slice(&piece[..count]);
    }
    String::from_utf8_lossy(&said).into_owned()
}

fn proxy() -> (Server, ApiProxy) {
    let server = Server::start();
    let proxy = ApiProxy::before(Upstream::plain(server.address), None);
    (server, proxy)
}

#[test]
fn what_changes_something_is_counted_and_what_does_not_is_not() {
    let (server, proxy) = proxy();
    for what in ["GET /a", "POST /b", "PATCH /c?x=1", "HEAD /d", "DELETE /e"] {
        assert!(ask(&proxy, what).starts_with("HTTP/1.1 200"), "{what}");
    }
    let counted: Vec<String> = proxy.mutations().iter().map(ToString::to_string).collect();
    assert_eq!(counted, ["POST /b", "PATCH /c?x=1", "DELETE /e"]);
    assert_eq!(server.done().len(), 5);
}

#[test]
fn each_fault_strikes_the_one_request_that_it_is_for() {
    for (fault, effect, told) in [
        (Fault::KillBeforeSend, false, ""),
        (Fault::KillAfterEffect, true, ""),
        (Fault::Answer(429), false, "HTTP/1.1 429"),
        (Fault::LostAnswer, true, ""),
        (Fault::TimeOut, true, ""),
    ] {
        let (server, proxy) = proxy();
        let killed = Arc::new(Mutex::new(None));
        let (of_kill, seen) = (Arc::clone(&killed), Arc::clone(&server.done));
        proxy.kills_by(move || {
            let done = seen.lock().expect("nobody panicked").len();
            *of_kill.lock().expect("nobody panicked") = Some(done);
        });
        assert!(ask(&proxy, "POST /before").contains("POST /before"));
        proxy.arm(Armed { nth: 2, fault });
        assert!(ask(&proxy, "POST /first").contains("POST /first"), "{fault:?}");
        let said = ask(&proxy, "POST /second");
        assert!(
            said.starts_with(told) && (!told.is_empty() || said.is_empty()),
            "{fault:?}: {said}"
        );
        assert_eq!(server.done().contains(&"POST /second".to_owned()), effect, "{fault:?}");
        let kills = match fault {
            Fault::KillBeforeSend => Some(2),
            Fault::KillAfterEffect => Some(3),
            _ => None,
        };
        assert_eq!(*killed.lock().expect("nobody panicked"), kills, "{fault:?}");
        assert_eq!(proxy.struck(), 1);
        assert!(ask(&proxy, "POST /third").contains("POST /third"), "{fault:?}");
        assert_eq!(proxy.struck(), 1);
    }
}

#[test]
fn events_of_watches_are_late_or_left_out_and_answers_are_not() {
    let (_server, proxy) = proxy();
    proxy.watches(Watches { delay: Duration::from_millis(300), drop_every: 2 });
    let begun = std::time::Instant::now();
    let said = ask(&proxy, "GET /pods?watch=true");
    assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
    let kept: Vec<bool> =
        (1..=4).map(|number| said.contains(&format!("\"object\":{number}"))).collect();
    assert_eq!(kept, [true, false, true, false], "{said}");
    assert!(ask(&proxy, "GET /pods").contains("GET /pods"));
}
