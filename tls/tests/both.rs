//! Both ends, over sockets: who is believed, who is not, and in which words.
#![allow(
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

use std::time::Duration;

use casemate_protocol::tls::{Certificate, Pin};
use casemate_tls::client::{NotConnected, NotTrusted, secure};
use casemate_tls::issue::{issue, issue_for};
use casemate_tls::server::{Acceptor, Unusable};
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const LONG: Duration = Duration::from_secs(60);
const NAME: &str = "w-slot";

/// What a client with this pin makes of a worker with this certificate: the five bytes that it says, or why not.
async fn meets(certificate: &Certificate, pin: &Pin) -> Result<String, NotConnected> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = Acceptor::new(certificate).unwrap();
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        if let Ok(mut stream) = acceptor.accept(stream, LONG).await {
            stream.write_all(b"hello").await.ok();
            stream.shutdown().await.ok();
        }
    };
    let client = async {
        let stream = TcpStream::connect(address).await?;
        let mut stream = secure(stream, Some(pin)).await?;
        let mut said = String::new();
        stream.read_to_string(&mut said).await?;
        Ok(said)
    };
    tokio::join!(server, client).1
}

fn not_trusted(outcome: Result<String, NotConnected>) -> NotTrusted {
    match outcome {
        Err(NotConnected::NotTrusted(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_right_worker_is_believed_and_nobody_else() {
    let (certificate, pin) = issue(NAME).unwrap();
    assert_eq!(meets(&certificate, &pin).await.unwrap(), "hello");

    let (other, other_pin) = issue(NAME).unwrap();
    assert_eq!(not_trusted(meets(&other, &pin).await), NotTrusted::Authority);
    assert_eq!(not_trusted(meets(&certificate, &other_pin).await), NotTrusted::Authority);

    let elsewhere = Pin { name: "w-other".into(), ..pin.clone() };
    let why = not_trusted(meets(&certificate, &elsewhere).await);
    assert_eq!(why, NotTrusted::Name("w-other".into()));

    // Its own authority, which nobody was given.
    let key = rcgen::KeyPair::generate().unwrap();
    let own = rcgen::CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    let own = own.self_signed(&key).unwrap();
    let own = Certificate { chain: own.pem(), key: key.serialize_pem() };
    assert_eq!(not_trusted(meets(&own, &pin).await), NotTrusted::Authority);
}

#[tokio::test]
async fn certificates_out_of_their_time_are_refused_in_words() {
    let now = OffsetDateTime::now_utc();
    let day = time::Duration::days(1);
    let (expired, pin) = issue_for(NAME, now - day * 2, now - day).unwrap();
    let why = not_trusted(meets(&expired, &pin).await);
    assert_eq!(why, NotTrusted::Expired);
    assert!(why.to_string().contains("expired"), "{why}");
    let (early, pin) = issue_for(NAME, now + day, now + day * 2).unwrap();
    assert_eq!(not_trusted(meets(&early, &pin).await), NotTrusted::NotYet);
}

#[tokio::test]
async fn whoever_speaks_something_else_gets_nothing() {
    let (certificate, pin) = issue(NAME).unwrap();
    // A plain server, for a client that wants TLS: it hears no more than the greeting.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.ok();
        heard
    };
    let client = async { secure(TcpStream::connect(address).await.unwrap(), Some(&pin)).await };
    let (heard, outcome) = tokio::join!(server, client);
    let outcome = outcome.map(|_| String::new());
    assert!(matches!(not_trusted(outcome), NotTrusted::OtherProtocol(_)));
    assert!(!String::from_utf8_lossy(&heard).contains("GET"), "{heard:?}");

    // A plain client, for a server that wants TLS.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let acceptor = Acceptor::new(&certificate).unwrap();
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        acceptor.accept(stream, LONG).await
    };
    let client = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /acp HTTP/1.1\r\n\r\n").await.unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).await.ok();
        heard
    };
    let (served, heard) = tokio::join!(server, client);
    assert!(served.is_err() && !heard.starts_with(b"HTTP"), "{heard:?}");
}

#[test]
fn what_cannot_be_served_is_said() {
    let (one, _) = issue(NAME).unwrap();
    let (two, _) = issue(NAME).unwrap();
    let outcome = |chain: &str, key: &str| {
        Acceptor::new(&Certificate { chain: chain.into(), key: key.into() }).unwrap_err()
    };
    assert!(matches!(outcome("", &one.key), Unusable::Chain));
    assert!(matches!(outcome(&one.chain, ""), Unusable::Key));
    assert!(matches!(outcome(&one.chain, &two.key), Unusable::Pair));
    let nonsense = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    assert!(matches!(outcome(&one.chain, nonsense), Unusable::Kind));
    assert!(issue("sl\u{f6}t").is_err(), "a name is ASCII");
}
