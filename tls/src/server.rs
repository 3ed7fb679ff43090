//! The worker's end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use casemate_protocol::tls::Certificate;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;
use rustls::{InconsistentKeys, ServerConfig};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::ALPN;
use crate::provider::provider;

/// A connection that is encrypted.
pub type Stream = tokio_rustls::server::TlsStream<TcpStream>;

/// Clients show no certificate: there is nothing to look at.
const NONE: WebPkiSupportedAlgorithms = WebPkiSupportedAlgorithms { all: &[], mapping: &[] };

/// What makes connections encrypted.
#[derive(Clone)]
pub struct Acceptor(TlsAcceptor);

/// Why a certificate cannot be served with. Never carries the key.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// No certificate in PEM.
    #[error("`chain` holds no certificate in PEM")]
    Chain,
    /// No key in PEM.
    #[error("`key` holds no private key in PEM")]
    Key,
    /// A key of another kind, or a damaged one.
    #[error("`key` is no ECDSA key on P-256 (openssl ecparam -name prime256v1 -genkey)")]
    Kind,
    /// Not of one pair.
    #[error("`key` is not the key of the first certificate in `chain`")]
    Pair,
    /// Anything else about the certificate.
    #[error("the certificate cannot be served: {0}")]
    Other(String),
}

// === impl Acceptor ===

impl Acceptor {
    /// Serves with this certificate.
    ///
    /// # Errors
    /// [`Unusable`].
    pub fn new(certificate: &Certificate) -> Result<Self, Unusable> {
        let chain = CertificateDer::pem_slice_iter(certificate.chain.as_bytes());
        let chain: Vec<_> =
            chain.collect::<Result<_, pem::Error>>().map_err(|_| Unusable::Chain)?;
        if chain.is_empty() {
            return Err(Unusable::Chain);
        }
        let key = PrivateKeyDer::from_pem_slice(certificate.key.as_bytes());
        let key = key.map_err(|_| Unusable::Key)?;
        let provider = provider(NONE);
        let key = provider.key_provider.load_private_key(key).map_err(|_| Unusable::Kind)?;
        let key = rustls::sign::CertifiedKey::new(chain, key);
        match key.keys_match() {
            Ok(()) => {}
            Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                return Err(Unusable::Pair);
            }
            Err(error) => return Err(Unusable::Other(error.to_string())),
        }
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(|error| Unusable::Other(error.to_string()))?;
        let resolver = Arc::new(rustls::sign::SingleCertAndKey::from(key));
        let mut config = config.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// The handshake, which may take this long.
    ///
    /// # Errors
    /// Whatever the peer did instead.
    pub async fn accept(&self, stream: TcpStream, within: Duration) -> io::Result<Stream> {
        timeout(within, self.0.accept(stream)).await?
    }
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Acceptor")
    }
}
