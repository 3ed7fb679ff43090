//! A door's WebSocket with an echo behind it, for `conformance/websocket`: the worker's handshake, the plain door's connection or (with
//! the argument `apart`) the resumable one's, its limits, its close codes, and nothing of ACP. Prints where it listens.

use std::convert::Infallible;

use casemate_supervisor::http::{echo, upgrade};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, UPGRADE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

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
            match std::env::args().nth(1).as_deref() {
                Some("apart") => echo::apart(stream).await,
                _ => echo::plain(stream).await,
            }
        }
    });
    Ok(response)
}
