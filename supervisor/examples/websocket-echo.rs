//! The door's WebSocket with an echo behind it, for `conformance/websocket`: the worker's handshake, its connection with its limits,
//! its close codes, and nothing of ACP. Prints where it listens.

use std::convert::Infallible;

use casemate_protocol::acp::frame::MAX_LINE;
use casemate_supervisor::http::{pulse, upgrade};
use futures_util::{SinkExt as _, StreamExt as _};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, UPGRADE};
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

fn main() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, serve())
}

async fn serve() -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::task::spawn_local(async move {
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service_fn(answer))
                .with_upgrades()
                .await;
        });
    }
}

async fn answer(mut request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
    let mut response = Response::new(Empty::new());
    let Ok(accept) = upgrade::accept(request.headers()) else {
        *response.status_mut() = StatusCode::UPGRADE_REQUIRED;
        return Ok(response);
    };
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let accept = HeaderValue::from_str(&accept).expect("base64 is a header's value");
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
    response.headers_mut().insert(SEC_WEBSOCKET_ACCEPT, accept);
    tokio::task::spawn_local(async move {
        if let Ok(stream) = hyper::upgrade::on(&mut request).await {
            echo(stream).await;
        }
    });
    Ok(response)
}

async fn echo(stream: Upgraded) {
    let (socket, pulse) = pulse::open(stream, MAX_LINE).await;
    let (mut sink, mut stream) = socket.split();
    loop {
        let close = match pulse.next(&mut stream).await {
            Some(Ok(message @ (Message::Text(_) | Message::Binary(_)))) => {
                if sink.send(message).await.is_err() {
                    return;
                }
                continue;
            }
            Some(Ok(Message::Close(_))) => None,
            Some(Ok(_)) => continue,
            Some(Err(error)) => match pulse::breach(&error) {
                Some((code, words)) => Some(CloseFrame { code: code.into(), reason: words.into() }),
                None => return,
            },
            None => return,
        };
        return pulse::close(&mut sink, &mut stream, close).await;
    }
}
