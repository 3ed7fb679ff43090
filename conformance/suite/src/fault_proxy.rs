//! A TCP proxy that breaks what goes through it: cuts, delays, splits at any byte, freezes either side; cuts whoever is
//! silent for too long, as proxies on the way do; keeps connections open and carries nothing, as a network that is gone does.
//!
//! Owns a thread for its port and two for each connection. What happens to a connection follows from the seed and the
//! connection's number alone; when, from the machine.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The proxy.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: Mutex<SocketAddr>,
    seed: u64,
    faults: AtomicBool,
    shut: AtomicBool,
    over: AtomicBool,
    connections: AtomicU64,
    cuts: AtomicU64,
    /// Connections before this one carry nothing any more, not even their end.
    frozen: AtomicU64,
    /// Milliseconds of silence after which a connection is cut.
    patience: AtomicU64,
    /// How many times as far as by their plan connections get.
    room: AtomicU64,
    /// Connections that know no fault, to be cut when there shall be faults.
    whole: Mutex<Vec<TcpStream>>,
}

/// What happens to one connection.
#[derive(Debug, Clone, Copy)]
struct Plan {
    /// Cut after so many bytes, upwards or downwards, or so many milliseconds, whichever comes first.
    up: u64,
    down: u64,
    after: u64,
    /// Neither byte nor end passes this way any more for a while before the cut.
    freeze: Option<Way>,
    /// Pieces of at most so many bytes.
    piece: usize,
    /// One of so many pieces is held up for a millisecond.
    delay: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

/// About as many bytes go each way until both have greeted.
const HANDSHAKE: u64 = 400;
/// How often silence and freezes are looked at.
const LOOK: Duration = Duration::from_millis(20);
/// And so many where they shook hands by TLS before.
const HANDSHAKE_TLS: u64 = 1800;
/// The first byte of TLS: a record of its handshake (RFC 8446 section 5.1). What is called inside is not to be seen.
const TLS: u8 = 22;
/// How long a frozen connection stays before it is cut, in milliseconds.
const FROZEN: u64 = 60;

// === impl FaultProxy ===

impl FaultProxy {
    /// To `target`, at first without faults.
    ///
    /// # Errors
    /// Where no port is to be had.
    pub fn start(target: SocketAddr, seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            target: Mutex::new(target),
            seed,
            faults: AtomicBool::new(false),
            shut: AtomicBool::new(false),
            over: AtomicBool::new(false),
            connections: AtomicU64::new(0),
            cuts: AtomicU64::new(0),
            frozen: AtomicU64::new(0),
            patience: AtomicU64::new(u64::MAX),
            room: AtomicU64::new(1),
            whole: Mutex::default(),
        });
        let served = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if served.over.load(Ordering::Relaxed) {
                    return;
                }
                let served = Arc::clone(&served);
                if let Ok(stream) = stream {
                    std::thread::spawn(move || served.serve(stream));
                }
            }
        });
        Ok(Self { address, shared })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads elsewhere from now on.
    pub fn lead_to(&self, target: SocketAddr) {
        *self.shared.target.lock().unwrap_or_else(PoisonError::into_inner) = target;
    }

    /// New connections meet faults, or none; those that are there without are cut.
    pub fn faults(&self, on: bool) {
        self.shared.faults.store(on, Ordering::Relaxed);
        if on {
            self.cut();
        }
    }

    /// Nothing gets through from now on, or everything again.
    pub fn shut(&self, on: bool) {
        self.shared.shut.store(on, Ordering::Relaxed);
        if on {
            self.cut();
        }
    }

    /// Cuts the connections that meet no faults.
    pub fn cut(&self) {
        let mut whole = self.shared.whole.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in whole.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// All connections that are there are half open from now on: neither bytes nor their end pass. New ones do.
    pub fn freeze(&self) {
        self.shared.frozen.store(self.connections(), Ordering::Relaxed);
    }

    /// Cuts connections on which nothing passes for so long, either way; those that come from now on.
    pub fn patience(&self, silence: Duration) {
        let millis = u64::try_from(silence.as_millis()).unwrap_or(u64::MAX);
        self.shared.patience.store(millis, Ordering::Relaxed);
    }

    /// Connections that come from now on and get beyond their greetings live this many times as long, in bytes and in time: as long
    /// messages need, of which all has to pass over one.
    pub fn room(&self, times: u64) {
        self.shared.room.store(times, Ordering::Relaxed);
    }

    /// Connections that ever came.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Connections to `/acp`, or encrypted ones, that were cut.
    #[must_use]
    pub fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::Relaxed)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        // Wakes the listener.
        drop(TcpStream::connect(self.address));
    }
}

// === impl Shared ===

impl Shared {
    fn serve(&self, client: TcpStream) {
        if self.shut.load(Ordering::Relaxed) {
            return;
        }
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        let target = *self.target.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(server) = TcpStream::connect(target) else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let mut head = [0; 8];
        let length = client.peek(&mut head).unwrap_or(0);
        let is_tls = length > 0 && head[0] == TLS;
        let attaches = is_tls || head[..length] == *b"GET /acp";
        let faulty = attaches && self.faults.load(Ordering::Relaxed);
        let handshake = if is_tls { HANDSHAKE_TLS } else { HANDSHAKE };
        let room = self.room.load(Ordering::Relaxed);
        let plan = faulty.then(|| Plan::of(self.seed, number, handshake, room));
        let (ended, silent) = (AtomicBool::new(false), AtomicBool::new(true));
        let patience = Duration::from_millis(self.patience.load(Ordering::Relaxed));
        let impatient = attaches && patience < Duration::from_millis(u64::MAX);
        let cut = || {
            if !ended.swap(true, Ordering::Relaxed) && (faulty || impatient) {
                self.cuts.fetch_add(1, Ordering::Relaxed);
            }
            let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
        };
        if attaches && !faulty {
            let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
            whole.extend(client.try_clone());
        }
        let (Ok(client_in), Ok(server_in)) = (client.try_clone(), server.try_clone()) else {
            return;
        };
        let (client, server) = (&client, &server);
        let frozen = || self.frozen(number);
        std::thread::scope(|scope| {
            let passes = |way| {
                let most =
                    plan.map(|plan| (plan, if way == Way::Up { plan.up } else { plan.down }, way));
                Passage { plan: most, ended: &ended, silent: &silent, frozen: &frozen }
            };
            let (up, down) = (passes(Way::Up), passes(Way::Down));
            scope.spawn(move || {
                up.pump(client_in, server);
                cut();
            });
            scope.spawn(move || {
                down.pump(server_in, client);
                cut();
            });
            if let Some(plan) = plan {
                std::thread::sleep(Duration::from_millis(plan.after));
                cut();
            }
            let mut since = Instant::now();
            while impatient && !ended.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
                if !silent.swap(true, Ordering::Relaxed) {
                    since = Instant::now();
                } else if since.elapsed() > patience {
                    cut();
                }
            }
        });
    }

    fn frozen(&self, number: u64) -> bool {
        number < self.frozen.load(Ordering::Relaxed) && !self.over.load(Ordering::Relaxed)
    }
}

/// One way of one connection.
struct Passage<'a> {
    plan: Option<(Plan, u64, Way)>,
    ended: &'a AtomicBool,
    silent: &'a AtomicBool,
    frozen: &'a (dyn Fn() -> bool + Sync),
}

impl Passage<'_> {
    fn pump(&self, mut from: TcpStream, mut to: &TcpStream) {
        let mut bytes = vec![0; 16 * 1024];
        let (mut passed, mut pieces) = (0u64, 0u64);
        loop {
            let read = from.read(&mut bytes);
            while (self.frozen)() {
                std::thread::sleep(LOOK);
            }
            let Ok(length @ 1..) = read else { return };
            self.silent.store(false, Ordering::Relaxed);
            let Some((plan, most, way)) = self.plan else {
                if to.write_all(&bytes[..length]).is_err() {
                    return;
                }
                continue;
            };
            for piece in bytes[..length].chunks(plan.piece) {
                let left = usize::try_from(most - passed).unwrap_or(usize::MAX);
                let piece = &piece[..piece.len().min(left)];
                if to.write_all(piece).is_err() {
                    return;
                }
                passed += piece.len() as u64;
                pieces += 1;
                if passed >= most {
                    if plan.freeze == Some(way) && !self.ended.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(FROZEN));
                    }
                    return;
                }
                if pieces.is_multiple_of(plan.delay) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }
}

// === impl Plan ===

impl Plan {
    fn of(seed: u64, number: u64, handshake: u64, room: u64) -> Self {
        let mut state = seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        // xorshift64* (Vigna 2016): any spread of values is good enough here.
        let mut draw = |below: u64| {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % below
        };
        // Most get through the handshake, or little else would ever be cut.
        let most = |kind: u64, place: u64| match kind {
            0 => 1 + place % handshake,
            1 | 2 => handshake + place % 1_000,
            _ => handshake + place % (20_000 * room),
        };
        let (up, down) = ((draw(10), draw(1 << 30)), (draw(10), draw(1 << 30)));
        Self {
            up: most(up.0, up.1),
            down: most(down.0, down.1),
            after: (2 + draw(30)) * room,
            freeze: [None, None, None, Some(Way::Up), Some(Way::Down)]
                [usize::try_from(draw(5)).unwrap_or(0)],
            // Millions of bytes one by one would take minutes.
            piece: [1, 7, 100, 16 * 1024][usize::try_from(draw(4)).unwrap_or(3)]
                .max(usize::try_from(room / 4).unwrap_or(1)),
            delay: 40 + draw(100),
        }
    }
}
