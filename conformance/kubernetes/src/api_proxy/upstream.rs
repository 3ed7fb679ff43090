//! The real API server.

use std::fs::File;
use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::Cluster;

/// Whatever goes wrong on the way.
pub(super) type Error = Box<dyn std::error::Error + Send + Sync>;

/// Where the server is and whom to believe.
#[derive(Clone)]
pub(super) struct Upstream {
    address: SocketAddr,
    /// None: it speaks plain HTTP.
    tls: Option<TlsConnector>,
}

impl Upstream {
    /// As the cluster's kubeconfig says.
    pub(super) fn of(cluster: &Cluster) -> Result<Self, Error> {
        let text = cluster.must(&["config", "view", "--raw", "--minify", "--output", "json"], "");
        let config: Value = serde_json::from_str(&text)?;
        let server = &config["clusters"][0]["cluster"];
        let url = server["server"].as_str().ok_or("no server")?;
        let address = url.strip_prefix("https://").ok_or("no https")?.parse()?;
        let authority = server["certificate-authority-data"].as_str().ok_or("no authority")?;
        let pem = base64::engine::general_purpose::STANDARD.decode(authority)?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&pem)?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { address, tls: Some(TlsConnector::from(Arc::new(tls))) })
    }

    /// A server without TLS.
    #[cfg(test)]
    pub(super) fn plain(address: SocketAddr) -> Self {
        Self { address, tls: None }
    }

    /// As a request names it.
    pub(super) fn host(&self) -> String {
        self.address.to_string()
    }

    /// Sends a request over a connection of its own.
    pub(super) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, Error> {
        let stream = TcpStream::connect(self.address).await?;
        let Some(tls) = &self.tls else { return over(stream, request).await };
        let name = ServerName::from(self.address.ip());
        over(tls.connect(name, stream).await?, request).await
    }
}

async fn over<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender.send_request(request).await?)
}

/// This thread's network from now on; those of its sockets that are there stay in the former one.
pub(super) fn enter(network: &std::ffi::OsStr) -> Result<(), Error> {
    Ok(nix::sched::setns(File::open(network)?, nix::sched::CloneFlags::CLONE_NEWNET)?)
}
