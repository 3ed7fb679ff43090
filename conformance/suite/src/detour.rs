//! An allocator's door before another one's: the same answers, but workers are reached through a [`FaultProxy`].
//!
//! Has a casemate home of its own, whose discovery file leads here. It proves itself as the allocator does, since it knows
//! the token that it was given.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;

use casemate_protocol::api::Endpoint;
use casemate_protocol::proof::Prover;

use crate::fault_proxy::FaultProxy;

/// The door.
#[derive(Debug)]
pub struct Detour {
    /// What workers are reached through.
    pub proxy: Arc<FaultProxy>,
    _lock: File,
}

struct Door {
    address: SocketAddr,
    behind: Endpoint,
    proxy: Arc<FaultProxy>,
}

// === impl Detour ===

impl Detour {
    /// A door to `behind`, found by whoever has `home` as `CASEMATE_HOME`. It serves as long as this process.
    ///
    /// # Errors
    /// Where no port is to be had or `home` cannot be written.
    pub fn start(behind: Endpoint, home: &Path, seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let proxy = Arc::new(FaultProxy::start(behind.address, seed)?);
        let run = home.join("run");
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&run)?;
        let pid = std::process::id();
        let endpoint = serde_json::json!({"address": address, "token": behind.token, "pid": pid});
        std::fs::write(run.join("allocator.json"), endpoint.to_string())?;
        let mut lock = File::create_new(run.join("up.lock"))?;
        lock.lock()?;
        writeln!(lock, "{pid}")?;
        let door = Arc::new(Door { address, behind, proxy: Arc::clone(&proxy) });
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let door = Arc::clone(&door);
                std::thread::spawn(move || {
                    let mut reader = BufReader::new(stream);
                    while door.answer(&mut reader).unwrap_or(false) {}
                });
            }
        });
        Ok(Self { proxy, _lock: lock })
    }
}

// === impl Door ===

impl Door {
    /// One call; false where the client has hung up.
    fn answer(&self, reader: &mut BufReader<TcpStream>) -> io::Result<bool> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(false);
            }
        }
        let lower = head.to_ascii_lowercase();
        let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
        reader.read_exact(&mut body)?;
        let path = head.split(' ').nth(1).unwrap_or_default();
        if let Some(Ok(nonce)) = path.strip_prefix("/healthz?nonce=").map(str::parse) {
            let proof = Prover::new(&self.behind.token).prove(self.address, nonce);
            let answer = serde_json::json!({"ok": true, "proof": proof}).to_string();
            return respond(reader, "HTTP/1.1 200 OK", &answer);
        }
        let (status, answer) = self.pass(&head, &body)?;
        respond(reader, &status, &self.redirect(&answer))
    }

    fn pass(&self, head: &str, body: &[u8]) -> io::Result<(String, String)> {
        let mut behind = TcpStream::connect(self.behind.address)?;
        let head = head.replacen("\r\n", "\r\nconnection: close\r\n", 1);
        behind.write_all(head.as_bytes())?;
        behind.write_all(body)?;
        let mut answer = String::new();
        behind.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        Ok((head.lines().next().unwrap_or_default().to_owned(), body.to_owned()))
    }

    /// The worker's address becomes the proxy's.
    fn redirect(&self, answer: &str) -> String {
        let Ok(mut json) = serde_json::from_str::<serde_json::Value>(answer) else {
            return answer.to_owned();
        };
        let Some(address) = json["address"].as_str().and_then(|text| text.parse().ok()) else {
            return answer.to_owned();
        };
        self.proxy.lead_to(address);
        json["address"] = self.proxy.address().to_string().into();
        json.to_string()
    }
}

fn respond(reader: &mut BufReader<TcpStream>, status: &str, body: &str) -> io::Result<bool> {
    let head = format!("{status}\r\ncontent-length: {}\r\n\r\n", body.len());
    let stream = reader.get_mut();
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    Ok(true)
}
