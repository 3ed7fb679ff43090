//! The limit: a bridge that does as little as one can. Pipes on one side, a WebSocket on the other, a blocking thread each way, no look at
//! what passes, nothing kept.

use std::io::{self, Read, Write as _};
use std::net::TcpStream;

use memchr::memchr_iter;

use crate::websocket;

/// Between a host on stdin and stdout and the relay at a port of loopback.
pub(crate) fn run(port: u16) {
    let relay = websocket::connect(port, "/", "");
    let from = relay.try_clone().unwrap();
    let down = std::thread::spawn(move || down(from));
    // The host's end is the end.
    let _ = up(&relay);
    let _ = relay.shutdown(std::net::Shutdown::Both);
    let _ = down.join();
}

fn up(mut to: &TcpStream) -> io::Result<()> {
    let mut stdin = io::stdin().lock();
    let (mut line, mut out) = (Vec::new(), Vec::new());
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let length = stdin.read(&mut bytes)?;
        if length == 0 {
            return Ok(());
        }
        let mut start = 0;
        for end in memchr_iter(b'\n', &bytes[..length]) {
            let part = &bytes[start..end];
            // A mask of zeros is one (RFC 6455 section 5.3).
            websocket::head(&mut out, websocket::TEXT, line.len() + part.len(), Some([0; 4]));
            out.append(&mut line);
            out.extend_from_slice(part);
            start = end + 1;
        }
        line.extend_from_slice(&bytes[start..length]);
        to.write_all(&out)?;
        out.clear();
    }
}

fn down(from: TcpStream) -> io::Result<()> {
    let mut frames = websocket::Frames::new(from);
    let mut stdout = io::stdout().lock();
    let mut out = Vec::new();
    loop {
        frames.fill()?;
        while let Some(frame) = frames.next() {
            out.extend_from_slice(frame.payload);
            out.push(b'\n');
        }
        stdout.write_all(&out)?;
        stdout.flush()?;
        out.clear();
    }
}
