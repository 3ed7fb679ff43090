//! Whoever listens where a worker was, and is not the one that was promised.

#![allow(clippy::unwrap_used, reason = "a stranger that does not stand fails its test")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use casemate_protocol::tls::{Certificate, Pin};
use casemate_tls::issue::{issue, issue_for};
use casemate_tls::server::Acceptor;
use time::OffsetDateTime;
use tokio::io::AsyncReadExt as _;

const NAME: &str = "w-slot";
const LONG: Duration = Duration::from_secs(30);

/// A listener of its own thread, and what it heard.
pub(crate) struct Stranger {
    pub(crate) address: SocketAddr,
    heard: Arc<Mutex<(usize, Vec<u8>)>>,
}

/// With this certificate or in plain text, what was promised, and a word of the refusal.
pub(crate) fn kinds() -> Vec<(Option<Certificate>, Pin, &'static str)> {
    let now = OffsetDateTime::now_utc();
    let day = time::Duration::days(1);
    let (_, pin) = issue(NAME).unwrap();
    let (other, _) = issue(NAME).unwrap();
    let (elsewhere, of_elsewhere) = issue("w-elsewhere").unwrap();
    let (expired, of_expired) = issue_for(NAME, now - day * 2, now - day).unwrap();
    let named = Pin { name: NAME.to_owned(), ..of_elsewhere };
    vec![
        (Some(other), pin.clone(), "another authority"),
        (Some(elsewhere), named, "another worker"),
        (Some(expired), of_expired, "expired"),
        (None, pin, "does not speak TLS"),
    ]
}

// === impl Stranger ===

impl Stranger {
    pub(crate) fn start(certificate: Option<Certificate>) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new((0, Vec::new())));
        let record = Arc::clone(&heard);
        let acceptor = certificate.map(|certificate| Acceptor::new(&certificate).unwrap());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                while let Ok((mut stream, _)) = listener.accept().await {
                    record.lock().unwrap().0 += 1;
                    let mut said = Vec::new();
                    match &acceptor {
                        Some(acceptor) => {
                            if let Ok(mut stream) = acceptor.accept(stream, LONG).await {
                                stream.read_to_end(&mut said).await.ok();
                            }
                        }
                        None => {
                            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                            tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await.ok();
                            stream.read_to_end(&mut said).await.ok();
                        }
                    }
                    record.lock().unwrap().1.extend(said);
                }
            });
        });
        Self { address, heard }
    }

    /// How many came, and all that they said.
    pub(crate) fn heard(&self) -> (usize, Vec<u8>) {
        self.heard.lock().unwrap().clone()
    }
}
