//! Where clients come in.

use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;

use casemate_protocol::tls::Certificate;
use casemate_protocol::worker::StartError;
use casemate_tls::server::Acceptor;

use super::other;
use crate::http;
use crate::http::app::App;
use crate::ports::Claim;

/// A listener, and what it encrypts with.
#[derive(Debug)]
pub(super) struct Door {
    listener: TcpListener,
    tls: Option<Acceptor>,
}

impl Door {
    /// The claim itself, unless the configuration names another address. The key is kept where it is used and nowhere else.
    pub(super) fn open(
        wanted: SocketAddr,
        tls: Option<Certificate>,
        claim: &Claim,
    ) -> Result<Self, StartError> {
        let tls = tls.map(|certificate| Acceptor::new(&certificate)).transpose();
        let tls = tls.map_err(|error| StartError::Config { message: format!("tls: {error}") })?;
        let address = match wanted.port() {
            0 => SocketAddr::new(wanted.ip(), claim.address().port()),
            _ => wanted,
        };
        let listener =
            if address == claim.address() { claim.listener() } else { TcpListener::bind(address) };
        let listener = listener.and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let listener = listener.map_err(|error| StartError::Listen {
            message: format!(
                "{address}: {error}: name a free address, or 127.0.0.1:0 for the worker's claim"
            ),
        })?;
        Ok(Self { listener, tls })
    }

    /// Where it is.
    pub(super) fn address(&self) -> Result<SocketAddr, StartError> {
        self.listener.local_addr().map_err(|error| other("no listener", &error))
    }

    /// Lets clients in from now on. On an event loop of one thread.
    pub(super) fn serve(self, app: Rc<App>) -> Result<(), StartError> {
        let listener = tokio::net::TcpListener::from_std(self.listener)
            .map_err(|error| other("no listener", &error))?;
        tokio::task::spawn_local(http::serve(listener, self.tls, app));
        Ok(())
    }
}
