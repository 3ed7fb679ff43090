//! A browser without a window, and the site whose pages it shows: `conformance/browser`, the npm packages, one file of facts.

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;

use crate::background::Background;
use crate::place::Place;

/// Names under which Chromium is installed.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// A site on an origin of its own.
#[derive(Debug)]
pub struct Site {
    server: Background,
    seen: Receiver<Value>,
}

/// A running browser; dropping it ends it.
#[derive(Debug)]
pub struct Browser(Child);

// === impl Site ===

impl Site {
    /// Serves `conformance`'s pages, and `facts` as `/door.json`.
    ///
    /// # Errors
    /// Where no port or thread is to be had.
    pub fn start(facts: impl Fn() -> Value + Clone + 'static + Send) -> io::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
        let (sender, seen) = channel();
        let server = Background::start("site", move |stream| {
            let (root, facts, sender) = (root.clone(), facts.clone(), sender.clone());
            async move {
                let service = service_fn(move |request| {
                    let (root, facts, sender) = (root.clone(), facts.clone(), sender.clone());
                    async move { Ok::<_, Infallible>(respond(&root, &facts, &sender, request).await) }
                });
                let served = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                served.await.ok();
            }
        })?;
        Ok(Self { server, seen })
    }

    /// Its origin, as a browser sends it.
    #[must_use]
    pub fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.server.port())
    }

    /// What a page reported; `None` where none did in time.
    #[must_use]
    pub fn seen(&self, within: Duration) -> Option<Value> {
        self.seen.recv_timeout(within).ok()
    }
}

async fn respond(
    root: &Path,
    facts: &impl Fn() -> Value,
    sender: &Sender<Value>,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let path = request.uri().path().to_owned();
    let found = match (request.method(), path.as_str()) {
        (&Method::POST, "/seen") => {
            let body = request.into_body().collect().await.map(|body| body.to_bytes());
            let report = body.ok().and_then(|body| serde_json::from_slice(&body).ok());
            // Nobody waits any more.
            sender.send(report.unwrap_or(Value::Null)).ok();
            Some((Bytes::new(), "text/plain"))
        }
        (&Method::GET, "/door.json") => {
            Some((facts().to_string().into_bytes().into(), "application/json"))
        }
        (&Method::GET, path) => file(root, path),
        _ => None,
    };
    let mut response = Response::new(Full::default());
    match found {
        Some((body, kind)) => {
            *response.body_mut() = Full::new(body);
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        }
        None => *response.status_mut() = StatusCode::NOT_FOUND,
    }
    response
}

fn file(root: &Path, path: &str) -> Option<(Bytes, &'static str)> {
    let path = match path.strip_prefix("/modules/") {
        Some(rest) => modules(root).join(rest),
        None => root.join(path.strip_prefix('/')?),
    };
    let kind = match path.extension()?.to_str()? {
        "html" => "text/html",
        "js" | "mjs" => "text/javascript",
        _ => return None,
    };
    Some((std::fs::read(path).ok()?.into(), kind))
}

fn modules(root: &Path) -> PathBuf {
    root.join(".cache/npm/node_modules")
}

// === impl Browser ===

impl Browser {
    /// Chromium on the PATH.
    #[must_use]
    pub fn program() -> Option<PathBuf> {
        let path = std::env::var_os("PATH")?;
        let places: Vec<PathBuf> = std::env::split_paths(&path).collect();
        NAMES
            .iter()
            .flat_map(|name| places.iter().map(move |place| place.join(name)))
            .find(|program| program.is_file())
    }

    /// Opens a page in a profile of the place's own.
    ///
    /// # Errors
    /// Where it does not start.
    pub fn open(program: &Path, place: &Place, url: &str) -> io::Result<Self> {
        let profile = place.path().join("browser");
        let log = std::fs::File::create(place.path().join("browser.log"))?;
        let child = Command::new(program)
            .args(["--headless", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update"])
            // Its own sandbox wants namespaces, which containers do not give; the pages are ours.
            .args(["--no-sandbox", "--enable-logging=stderr"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(url)
            .env_clear()
            .envs(place.environment())
            .current_dir(place.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Browser {
    /// What it started goes with it, or with the place.
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
