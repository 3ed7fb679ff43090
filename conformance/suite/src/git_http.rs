//! A real Git remote over HTTP: `git http-backend` (git-http-backend(1)) run as CGI (RFC 3875) for each request.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::background::Background;

/// Serves every repository below one directory.
#[derive(Debug)]
pub struct GitHttp {
    server: Background,
}

// === impl GitHttp ===

impl GitHttp {
    /// Starts serving the bare repositories below `root`.
    ///
    /// # Errors
    /// Where no port or thread is to be had.
    pub fn start(root: &Path) -> io::Result<Self> {
        let root = root.canonicalize()?;
        let server = Background::start("git-http", move |stream| {
            let root = root.clone();
            async move {
                let service = service_fn(move |request| respond(root.clone(), request));
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await
                    .ok();
            }
        })?;
        Ok(Self { server })
    }

    /// Where it listens, on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.server.port()
    }

    /// The URL of a repository by its path below the root.
    #[must_use]
    pub fn url(&self, repository: &str) -> String {
        format!("http://127.0.0.1:{}/{repository}", self.port())
    }
}

async fn respond(
    root: PathBuf,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(backend(&root, request).await.unwrap_or_else(|error| {
        let mut response = Response::new(Full::new(Bytes::from(error.to_string())));
        *response.status_mut() = hyper::StatusCode::INTERNAL_SERVER_ERROR;
        response
    }))
}

async fn backend(root: &Path, request: Request<Incoming>) -> io::Result<Response<Full<Bytes>>> {
    let header = |name: &str| {
        request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    };
    let mut backend = Command::new("git");
    backend
        .arg("http-backend")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", request.method().as_str())
        .env("PATH_INFO", request.uri().path())
        .env("QUERY_STRING", request.uri().query().unwrap_or_default())
        .env("CONTENT_TYPE", header("content-type"))
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let body = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
    backend.env("CONTENT_LENGTH", body.len().to_string());
    let mut child = backend.spawn()?;
    let mut stdin = child.stdin.take().expect("stdin was asked for");
    // Written beside the reading of its output, or a large request and a large answer wait for each other.
    let feed = tokio::task::spawn_local(async move { stdin.write_all(&body).await });
    let output = child.wait_with_output().await?;
    feed.await.map_err(io::Error::other)?.ok();
    parse(&output.stdout)
}

/// CGI: header lines, an empty line, the body; `Status:` is the status.
fn parse(output: &[u8]) -> io::Result<Response<Full<Bytes>>> {
    let end = output
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .ok_or_else(|| io::Error::other("git http-backend wrote no headers"))?;
    let mut response = Response::builder();
    for line in String::from_utf8_lossy(&output[..end]).lines() {
        match line.split_once(": ") {
            Some(("Status", status)) => {
                response = response.status(status.split(' ').next().unwrap_or("500"));
            }
            Some((name, value)) => response = response.header(name, value),
            None => {}
        }
    }
    response.body(Full::new(Bytes::copy_from_slice(&output[end + 4..]))).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::git;

    #[test]
    fn a_clone_over_http_has_the_commits() {
        let room = tempfile::tempdir().unwrap();
        let seed = room.path().join("seed");
        git(room.path(), &["init", "-q", "-b", "main", "seed"]);
        std::fs::write(seed.join("file"), "é".repeat(100_000)).unwrap();
        git(&seed, &["add", "."]);
        git(&seed, &["commit", "-q", "-m", "one"]);
        git(room.path(), &["clone", "-q", "--bare", "seed", "served.git"]);
        let remote = GitHttp::start(room.path()).unwrap();
        git(room.path(), &["clone", "-q", &remote.url("served.git"), "copy"]);
        assert_eq!(
            std::fs::read(room.path().join("copy/file")).unwrap(),
            std::fs::read(seed.join("file")).unwrap()
        );
    }
}
