//! A server on a thread of its own, so that blocking and async tests can both use it.
//!
//! The thread owns a one-thread runtime; dropping [`Background`] ends the accept loop and with it every connection.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread::JoinHandle;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// A running server.
#[derive(Debug)]
pub(crate) struct Background {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

// === impl Background ===

impl Background {
    /// Listens on loopback, on a port of the kernel's choice, and gives each connection to `serve`.
    pub(crate) fn start<Serve, Done>(name: &str, serve: Serve) -> io::Result<Self>
    where
        Serve: Fn(TcpStream) -> Done + Send + 'static,
        Done: Future<Output = ()> + 'static,
    {
        Self::start_at(Ipv4Addr::LOCALHOST.into(), name, serve)
    }

    /// The same on another address, in the network of the calling thread.
    pub(crate) fn start_at<Serve, Done>(at: IpAddr, name: &str, serve: Serve) -> io::Result<Self>
    where
        Serve: Fn(TcpStream) -> Done + Send + 'static,
        Done: Future<Output = ()> + 'static,
    {
        let listener = std::net::TcpListener::bind((at, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let tasks = tokio::task::LocalSet::new();
            tasks.block_on(&runtime, async move {
                let listener = TcpListener::from_std(listener).expect("the runtime runs here");
                let accept = async {
                    while let Ok((stream, _)) = listener.accept().await {
                        // Chunks of a streamed answer are small: without this each waits for an acknowledgement.
                        stream.set_nodelay(true).ok();
                        tokio::task::spawn_local(serve(stream));
                    }
                };
                tokio::select! {
                    () = accept => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}
