//! The end of whoever calls a worker: an encrypted connection to the one that it was sent to, or none.

use std::io;
use std::pin::Pin as Pinned;
use std::sync::Arc;
use std::task::{Context, Poll};

use casemate_protocol::tls::Pin;
use rustls::client::Resumption;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, Error, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::ALPN;
use crate::provider::provider;

/// ECDSA on P-256, as all that an allocator issues is signed.
const SIGNATURES: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms {
    all: &[webpki::ring::ECDSA_P256_SHA256],
    mapping: &[(SignatureScheme::ECDSA_NISTP256_SHA256, &[webpki::ring::ECDSA_P256_SHA256])],
};

/// A connection to a worker, encrypted where there is a pin.
#[derive(Debug)]
pub enum Stream {
    /// On loopback.
    Plain(TcpStream),
    /// To the one that the pin names.
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

/// Why whoever answered is not believed. Nothing was said to it but the name that was wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotTrusted {
    /// Signed by somebody else, itself included.
    #[error("its certificate is of another authority than the one that was given")]
    Authority,
    /// The right authority, another worker.
    #[error("its certificate is for another worker than {0}")]
    Name(String),
    /// Past its end.
    #[error("its certificate has expired: start the session's worker anew, and look at the clocks")]
    Expired,
    /// Before its begin.
    #[error("its certificate is not valid yet: look at the clocks")]
    NotYet,
    /// It speaks something else.
    #[error("it does not speak TLS 1.3 as a worker does: {0}")]
    OtherProtocol(String),
    /// Another flaw of the certificate.
    #[error("its certificate is not to be believed: {0}")]
    Certificate(String),
    /// What was given to believe is no certificate or no name.
    #[error("what was given to believe is damaged: {0}")]
    Pin(&'static str),
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum NotConnected {
    /// Nobody is there, or it broke off.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Somebody is there and is not believed: another try meets the same.
    #[error("whoever answers there is not the worker: {0}")]
    NotTrusted(NotTrusted),
}

impl From<NotTrusted> for NotConnected {
    fn from(error: NotTrusted) -> Self {
        Self::NotTrusted(error)
    }
}

/// Goes on with a connection as a worker's pin asks for; as it is where there is none.
///
/// # Errors
/// [`NotConnected`].
pub async fn secure(stream: TcpStream, pin: Option<&Pin>) -> Result<Stream, NotConnected> {
    let Some(pin) = pin else { return Ok(Stream::Plain(stream)) };
    let name = ServerName::try_from(pin.name.clone());
    let name = name.map_err(|_| NotTrusted::Pin("the name is none of DNS"))?;
    let connector = TlsConnector::from(Arc::new(config(pin)?));
    match connector.connect(name, stream).await {
        Ok(stream) => Ok(Stream::Tls(Box::new(stream))),
        Err(error) => Err(judged(error, pin)),
    }
}

fn config(pin: &Pin) -> Result<ClientConfig, NotTrusted> {
    let ca = CertificateDer::from_pem_slice(pin.ca.as_bytes());
    let ca = ca.map_err(|_| NotTrusted::Pin("the authority is no certificate in PEM"))?;
    let mut roots = RootCertStore::empty();
    roots.add(ca).map_err(|_| NotTrusted::Pin("the authority's certificate cannot be read"))?;
    let config = ClientConfig::builder_with_provider(provider(SIGNATURES))
        .with_protocol_versions(&[&TLS13])
        .map_err(|_| NotTrusted::Pin("TLS 1.3 is not to be had"))?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn judged(error: io::Error, pin: &Pin) -> NotConnected {
    let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else {
        return NotConnected::Io(error);
    };
    let verdict = match inner {
        Error::InvalidCertificate(flaw) => match flaw {
            CertificateError::UnknownIssuer
            | CertificateError::BadSignature
            | CertificateError::InvalidPurpose => NotTrusted::Authority,
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                NotTrusted::Expired
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                NotTrusted::NotYet
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                NotTrusted::Name(pin.name.clone())
            }
            other => NotTrusted::Certificate(format!("{other:?}")),
        },
        Error::InvalidMessage(_)
        | Error::PeerIncompatible(_)
        | Error::PeerMisbehaved(_)
        | Error::AlertReceived(_)
        | Error::NoApplicationProtocol
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. } => {
            NotTrusted::OtherProtocol(inner.to_string())
        }
        _ => return NotConnected::Io(error),
    };
    NotConnected::NotTrusted(verdict)
}

// === impl Stream ===

impl AsyncRead for Stream {
    fn poll_read(
        self: Pinned<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pinned::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pinned::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pinned<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pinned::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pinned::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pinned<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pinned::new(stream).poll_flush(context),
            Self::Tls(stream) => Pinned::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pinned<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pinned::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pinned::new(stream).poll_shutdown(context),
        }
    }
}
