//! The handshakes of `/acp`: the plain door, the resumable one, and a ticket's way back.

use std::rc::Rc;

use casemate_protocol::acp::server::Conn;
use casemate_protocol::relay::ticket::Refused;
use casemate_protocol::relay::{REFUSAL_HEADER, SUBPROTOCOL, TICKET_HEADER};
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use hyper::{Method, Request, StatusCode};

use super::answer::{Answer, text};
use super::app::App;
use super::metrics::add;
use super::session::{no_upgrade, switching};
use super::upgrade::Subprotocol;
use super::{resumable, socket, upgrade};
use crate::hosted::live::Hosted;
use crate::relay::outbox::Outbox;

const ACP_CONNECTION_ID: HeaderName = HeaderName::from_static("acp-connection-id");

/// A client whose token opens the session.
pub(super) fn attach(app: &App, hosted: &Rc<Hosted>, mut request: Request<Incoming>) -> Answer {
    let accept = match upgrade::accept(request.headers()) {
        Ok(accept) => accept,
        Err(error) => return no_upgrade(error),
    };
    let number = app.next_connection();
    let chosen = Subprotocol::chosen(request.headers());
    let resumable = chosen == Some(Subprotocol::Relay);
    let hosted = Rc::clone(hosted);
    tokio::task::spawn_local(async move {
        match hyper::upgrade::on(&mut request).await {
            Ok(stream) if resumable => resumable::serve(stream, number, hosted).await,
            Ok(stream) => {
                let shelf = hosted.attachments.plain(number);
                let outbox = Outbox::new(Rc::clone(&hosted.drained));
                let relay = hosted.clients.clone();
                socket::serve(stream, Conn(number), outbox, shelf, relay).await;
            }
            Err(error) => tracing::debug!(%error, "no upgrade"),
        }
    });
    opened(app, number, &accept, chosen)
}

/// A further connection of an attachment; `None` where the request carries no ticket.
pub(super) fn reattach(app: &App, request: &mut Request<Incoming>) -> Option<Answer> {
    if request.uri().path() != "/acp" || *request.method() != Method::GET {
        return None;
    }
    let ticket = request.headers().get(TICKET_HEADER)?;
    let known = ticket.to_str().ok().and_then(|ticket| app.ticket(ticket));
    let found =
        known.ok_or(Refused::Unknown).and_then(|(hosted, epoch)| hosted.attachments.find(epoch));
    let attachment = match found {
        Ok(attachment) => attachment,
        Err(refused) => {
            add(&app.refused, 1);
            return Some(no_way_back(refused));
        }
    };
    let chosen = Subprotocol::chosen(request.headers());
    if chosen != Some(Subprotocol::Relay) {
        let words = format!("a ticket is for {SUBPROTOCOL}: offer that");
        return Some(text(StatusCode::BAD_REQUEST, &words));
    }
    let accept = match upgrade::accept(request.headers()) {
        Ok(accept) => accept,
        Err(error) => return Some(no_upgrade(error)),
    };
    let number = attachment.epoch();
    let upgrading = hyper::upgrade::on(request);
    tokio::task::spawn_local(async move {
        match upgrading.await {
            Ok(stream) => attachment.arrive(stream),
            Err(error) => tracing::debug!(%error, "no upgrade"),
        }
    });
    Some(opened(app, number, &accept, chosen))
}

fn no_way_back(refused: Refused) -> Answer {
    let status = StatusCode::from_u16(refused.status()).unwrap_or(StatusCode::FORBIDDEN);
    let mut answer = text(status, "this ticket opens nothing here: attach anew");
    answer.headers_mut().insert(REFUSAL_HEADER, HeaderValue::from_static(refused.as_str()));
    answer
}

fn opened(app: &App, number: u64, accept: &str, chosen: Option<Subprotocol>) -> Answer {
    let mut answer = switching(accept);
    let headers = answer.headers_mut();
    if let Some(chosen) = chosen {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(chosen.as_str()));
    }
    if let Ok(value) = HeaderValue::from_str(&format!("{}-{number}", app.boot)) {
        headers.insert(ACP_CONNECTION_ID, value);
    }
    answer
}
