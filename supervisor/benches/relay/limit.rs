//! The limit: a relay that does as little as one can. A WebSocket on one side, a child's pipes on the other, a blocking thread
//! each way, no look at what passes, nothing kept. It forgets what it could not bring, and its one client is whoever comes.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};

use memchr::memchr_iter;

use crate::websocket;

/// Serves one client for the child of this program and arguments; prints its port first.
pub(crate) fn run(child: &[String]) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    let (mut client, _) = listener.accept().unwrap();
    client.set_nodelay(true).unwrap();
    websocket::accept(&mut client);
    let mut child = Command::new(&child[0])
        .args(&child[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let from = client.try_clone().unwrap();
    let up = std::thread::spawn(move || up(from, &mut stdin));
    // Either side's end is the end.
    let _ = down(stdout, &client);
    let _ = client.shutdown(std::net::Shutdown::Both);
    let _ = up.join();
    let _ = child.wait();
}

fn down(mut from: impl Read, mut to: &TcpStream) -> io::Result<()> {
    let (mut line, mut out) = (Vec::new(), Vec::new());
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut bytes)?;
        if length == 0 {
            return Ok(());
        }
        let mut start = 0;
        for end in memchr_iter(b'\n', &bytes[..length]) {
            let part = &bytes[start..end];
            websocket::head(&mut out, websocket::TEXT, line.len() + part.len(), None);
            out.append(&mut line);
            out.extend_from_slice(part);
            start = end + 1;
        }
        line.extend_from_slice(&bytes[start..length]);
        to.write_all(&out)?;
        out.clear();
    }
}

fn up(from: TcpStream, to: &mut impl Write) -> io::Result<()> {
    let mut frames = websocket::Frames::new(from);
    let mut out = Vec::new();
    loop {
        frames.fill()?;
        while let Some(frame) = frames.next() {
            let start = out.len();
            out.extend_from_slice(frame.payload);
            websocket::unmask(&mut out[start..], frame.mask);
            out.push(b'\n');
        }
        to.write_all(&out)?;
        out.clear();
    }
}
