//! A door with a certificate: spoken with by our own client and by OpenSSL (Python's `ssl`), out of the agent's reach.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use casemate_protocol::tier::Tier;
use casemate_protocol::tls::{Certificate, Pin};
use casemate_protocol::token::Audience;
use casemate_protocol::worker::StartError;
use casemate_tls::issue::issue;

use crate::client::Client;
use crate::harness::{ALL, LONG, Slot, Who};
use crate::many::Many;

fn slot(tier: Tier, who: Who) -> (Slot, Certificate, Pin) {
    let mut slot = Slot::new(tier, who);
    let (certificate, pin) = issue(slot.config.slot.as_str()).unwrap();
    slot.config.tls = Some(certificate.clone());
    (slot, certificate, pin)
}

fn attach(address: SocketAddr, pin: &Pin, token: &str) -> Result<Client, u16> {
    let bearer = format!("Bearer {token}");
    Client::attach_to(address, Some(pin), &[("authorization", &bearer)])
}

/// What OpenSSL makes of the door: `VERSION ALPN STATUS`, or the name of the error. `change` is done to its context first.
fn openssl(address: SocketAddr, pin: &Pin, name: &str, change: &str) -> String {
    let script = format!(
        r#"
import ssl, socket, sys
context = ssl.create_default_context(cadata=sys.stdin.read())
context.set_alpn_protocols(["http/1.1"])
{change}
try:
    plain = socket.create_connection(("{}", {}), 30)
    stream = context.wrap_socket(plain, server_hostname="{name}")
    stream.sendall(b"GET /healthz HTTP/1.1\r\nHost: w\r\nConnection: close\r\n\r\n")
    answer = stream.recv(65536).split()
    print(stream.version(), stream.selected_alpn_protocol(), answer[1].decode() if answer else "nothing")
except ssl.SSLError as error:
    print(error.reason or error)
except OSError as error:
    print(type(error).__name__)
"#,
        address.ip(),
        address.port()
    );
    let mut python = Command::new("python3")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is installed, as conformance/run does");
    python.stdin.take().unwrap().write_all(pin.ca.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_conversation_is_held_over_tls_and_the_agent_finds_no_key() {
    for (tier, who) in ALL {
        let (slot, certificate, pin) = slot(tier, who);
        let (worker, address) = slot.serve();
        let mut client = attach(address, &pin, &slot.token(Audience::Attach)).unwrap();
        client.initialize();
        let session = client.new_session();
        assert_eq!(client.shell(&session, "echo from $((6 * 7))"), "from 42\n[exit 0]");
        // Whatever of other processes can be read, and all of the slot's files.
        let root = slot.root.path().display();
        let looked = client.shell(
            &session,
            &format!(
                "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | head -c 1000000; \
                 find {root} /casemate -xdev -type f -exec cat {{}} + 2>/dev/null | head -c 1000000; echo"
            ),
        );
        assert!(looked.contains("PATH="), "it looked at nothing: {looked}");
        let secret = certificate.key.lines().nth(1).unwrap();
        assert!(!looked.contains(secret), "the key in the agent's reach, {tier} {who:?}");
        // Where the key lives: the supervisor's memory.
        let supervisor = if tier == Tier::Namespace { 1 } else { worker.pid().as_raw() };
        for file in ["mem", "maps", "environ", "fd/"] {
            let path = format!("/proc/{supervisor}/{file}");
            let answer = client.shell(&session, &format!("LC_ALL=C ls {path}; cat {path} 2>&1"));
            assert!(answer.contains("Permission denied"), "{tier} {who:?} {path}: {answer}");
            assert!(!answer.contains(secret), "{path}");
        }
        assert!(!worker.log().contains(secret), "the key in the log");
        drop(client);
        worker.stop();
    }
}

#[test]
fn openssl_believes_the_right_one_and_gets_nothing_but_tls_1_3_and_http_1_1() {
    let (slot, _, pin) = slot(Tier::Domain, Who::User);
    let (_, other) = issue(slot.config.slot.as_str()).unwrap();
    let (worker, address) = slot.serve();
    let name = pin.name.clone();
    assert_eq!(openssl(address, &pin, &name, ""), "TLSv1.3 http/1.1 200");
    assert_eq!(openssl(address, &pin, &name, "context.set_alpn_protocols([])"), "TLSv1.3 None 200");
    assert_eq!(openssl(address, &other, &name, ""), "CERTIFICATE_VERIFY_FAILED");
    assert_eq!(openssl(address, &pin, "w-other", ""), "CERTIFICATE_VERIFY_FAILED");
    let refused = openssl(address, &pin, &name, "context.maximum_version = ssl.TLSVersion.TLSv1_2");
    assert_eq!(refused, "TLSV1_ALERT_PROTOCOL_VERSION");
    let refused = openssl(address, &pin, &name, "context.set_alpn_protocols(['h2'])");
    let refused = refused.to_lowercase().replace('_', " ");
    assert!(refused.contains("no application protocol"), "{refused}");
    worker.stop();
}

#[test]
fn plain_http_gets_no_answer_at_all() {
    let (slot, _, _) = slot(Tier::Domain, Who::User);
    let (worker, address) = slot.serve();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let token = slot.token(Audience::Control);
    let request =
        format!("GET /v1/status HTTP/1.1\r\nHost: w\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A reset says no less.
    let _ = stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&answer));
    worker.stop();
}

#[test]
fn a_users_worker_has_one_too_and_what_cannot_be_served_is_no_start() {
    let mut many = Many::new(Who::User);
    let (certificate, pin) = issue(many.config.slot.as_str()).unwrap();
    many.config.tls = Some(certificate);
    let (worker, address) = many.serve();
    assert_eq!(openssl(address, &pin, &pin.name.clone(), ""), "TLSv1.3 http/1.1 200");
    worker.stop();

    let (mut slot, certificate, _) = slot(Tier::Domain, Who::User);
    let (another, _) = issue("w-another").unwrap();
    slot.config.tls = Some(Certificate { key: another.key, ..certificate });
    let (error, status) = slot.fails();
    assert!(matches!(error, StartError::Config { .. }), "{error}");
    assert!(error.to_string().contains("`key`"), "{error}");
    assert_eq!(status.code(), Some(64));
    slot.config.tls = None;
    slot.config.listen = ([0, 0, 0, 0], 0).into();
    let (error, _) = slot.fails();
    assert!(error.to_string().contains("not loopback"), "{error}");
}
