//! On what sessions of one user share without a path. Each makes something that any other session could find by its
//! number or name, and takes it away again.

use std::ffi::CString;
use std::io;
use std::path::Path;

use casemate_raw::{Arg, Call, Page, call};

use super::attack::{Attack, Defence::*, Run, Target};
use super::shot::Shot;

const fn ipc(id: &'static str, does: &'static str, source: &'static str, run: Run) -> Attack {
    Attack::new(Target::Ipc, id, does, source, run).refused(&["ENOSYS"])
}

const fn key(id: &'static str, does: &'static str, source: &'static str, run: Run) -> Attack {
    ipc(id, does, source, run).refused(&["EPERM"])
}

pub(super) const ATTACKS: &[Attack] = &[
    ipc("shm-make", "makes a memory segment that others find by number", "shmget(2)", |shot| {
        remove(Call::SHMCTL, make(Call::SHMGET, &[number_of(shot), 4096, CREATE])?)
    }),
    ipc("shm-attach", "maps a segment", "shmat(2)", |shot| {
        let id = make(Call::SHMGET, &[number_of(shot), 4096, CREATE])?;
        let attached = call(Call::SHMAT, &mut [Arg::Number(id), Arg::Number(0), Arg::Number(0)]);
        remove(Call::SHMCTL, id)?;
        attached.map(drop)
    }),
    ipc("semaphore-make", "makes semaphores that others find by number", "semget(2)", |shot| {
        let id = make(Call::SEMGET, &[number_of(shot), 1, CREATE])?;
        call(Call::SEMCTL, &mut [Arg::Number(id), Arg::Number(0), Arg::Number(0)]).map(drop)
    }),
    ipc("message-make", "makes a message queue that others find by number", "msgget(2)", |shot| {
        remove(Call::MSGCTL, make(Call::MSGGET, &[number_of(shot), CREATE])?)
    }),
    ipc("message-send", "sends a message", "msgsnd(2)", |shot| {
        let id = make(Call::MSGGET, &[number_of(shot), CREATE])?;
        let mut message = Page::of(&1_i64.to_ne_bytes());
        let sent = call(
            Call::MSGSND,
            &mut [Arg::Number(id), Arg::Page(&mut message), Arg::Number(8), Arg::Number(0o4000)],
        );
        remove(Call::MSGCTL, id)?;
        sent.map(drop)
    }),
    ipc(
        "queue-open",
        "opens a message queue that others find by name",
        "landlock-lsm/linux #29, mq_overview(7)",
        |shot| queue(shot).map(drop),
    )
    .by(&[CallRules, FileRules]),
    ipc("queue-send", "sends a message to a named queue", "mq_send(3)", |shot| {
        let queue = queue(shot)?;
        call(
            Call::MQ_TIMEDSEND,
            &mut [
                Arg::Number(queue),
                Arg::Page(&mut Page::of(b"x")),
                Arg::Number(1),
                Arg::Number(0),
                Arg::Number(0),
            ],
        )
        .map(drop)
    })
    .by(&[CallRules, FileRules]),
    ipc("queue-remove", "removes a named queue", "mq_unlink(3)", |shot| {
        // Where it may not open one, the kernel has made it all the same.
        let name = name(shot)?;
        let flags = Arg::Number(0o102);
        let _ =
            call(Call::MQ_OPEN, &mut [Arg::Text(&name), flags, Arg::Number(0o600), Arg::Number(0)]);
        call(Call::MQ_UNLINK, &mut [Arg::Text(&name)]).map(drop)
    }),
    key("key-add", "puts a key into the keyring of its user", "keyrings(7), add_key(2)", |shot| {
        let id = add_key(shot, USER_KEYRING)?;
        keyctl(&[UNLINK, id, USER_KEYRING])
    }),
    key(
        "key-add-session",
        "puts a key into the keyring of the user's logins",
        "user-session-keyring(7)",
        |shot| {
            let id = add_key(shot, USER_SESSION_KEYRING)?;
            keyctl(&[UNLINK, id, USER_SESSION_KEYRING])
        },
    ),
    key("key-find", "finds the keyring of its user", "keyctl(2) GET_KEYRING_ID", |_| {
        keyctl(&[0, USER_KEYRING, 1])
    }),
    key("key-link", "links the user's keyring into its own", "keyctl(2) LINK", |_| {
        keyctl(&[8, USER_KEYRING, PROCESS_KEYRING])
    }),
    key(
        "key-persistent",
        "gets the keyring that outlives the login",
        "persistent-keyring(7)",
        |_| keyctl(&[22, -1, PROCESS_KEYRING]),
    )
    .kernel(&["EPERM"]),
    key("key-join", "joins a session keyring by name", "CVE-2016-0728, keyctl(2)", |shot| {
        let name = name(shot)?;
        call(Call::KEYCTL_JOIN, &mut [Arg::Number(1), Arg::Text(&name)]).map(drop)
    }),
    key("key-request", "has the kernel run a helper to find a key", "request_key(2)", |shot| {
        let (kind, name) = (CString::new("user")?, name(shot)?);
        let found = call(
            Call::REQUEST_KEY,
            &mut [Arg::Text(&kind), Arg::Text(&name), Arg::Number(0), Arg::Number(0)],
        );
        match found {
            // The kernel looked through the user's keyrings: there is no such key.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOKEY.raw_os_error()) => {
                Ok(())
            }
            other => other.map(drop),
        }
    }),
    ipc(
        "shm-file",
        "makes a file in the memory that all sessions share",
        "shm_overview(7)",
        |shot| {
            let file = Path::new("/dev/shm").join(format!("{}-shm", shot.decoys.name));
            std::fs::File::create_new(&file)?;
            std::fs::remove_file(file)
        },
    )
    .by(&[FileRules])
    .domain(&["EACCES"])
    .own(),
    ipc("shm-list", "lists the memory that all sessions share", "shm_overview(7)", |_| {
        std::fs::read_dir("/dev/shm").map(drop)
    })
    .by(&[FileRules])
    .domain(&["EACCES"])
    .own(),
];

/// IPC_CREAT, for its owner.
const CREATE: i64 = 0o1600;
const UNLINK: i64 = 9;
const PROCESS_KEYRING: i64 = -2;
const USER_KEYRING: i64 = -4;
const USER_SESSION_KEYRING: i64 = -5;

/// Another number for each attack and each run (FNV-1a), and none that means "private".
fn number_of(shot: &Shot<'_>) -> i64 {
    let bytes = shot.decoys.name.bytes().chain(shot.id.bytes());
    let hash = bytes
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    i64::from(hash.cast_signed() | 1)
}

fn make(how: Call, args: &[i64]) -> io::Result<i64> {
    let mut args: Vec<Arg<'_>> = args.iter().map(|arg| Arg::Number(*arg)).collect();
    Ok(call(how, &mut args)?.cast_signed())
}

fn remove(how: Call, id: i64) -> io::Result<()> {
    call(how, &mut [Arg::Number(id), Arg::Number(0), Arg::Number(0)]).map(drop)
}

fn name(shot: &Shot<'_>) -> io::Result<CString> {
    Ok(CString::new(format!("{}-{}", shot.decoys.name, shot.id))?)
}

/// A name of the process's alone, gone at once: the descriptor lives on.
fn queue(shot: &Shot<'_>) -> io::Result<i64> {
    let name = name(shot)?;
    // O_RDWR | O_CREAT; the kernel's call takes the name without its slash.
    let flags = Arg::Number(0o102);
    let opened =
        call(Call::MQ_OPEN, &mut [Arg::Text(&name), flags, Arg::Number(0o600), Arg::Number(0)]);
    let _ = call(Call::MQ_UNLINK, &mut [Arg::Text(&name)]);
    let opened = opened?;
    Ok(opened.cast_signed())
}

fn add_key(shot: &Shot<'_>, keyring: i64) -> io::Result<i64> {
    let (kind, name) = (CString::new("user")?, name(shot)?);
    let added = call(
        Call::ADD_KEY,
        &mut [
            Arg::Text(&kind),
            Arg::Text(&name),
            Arg::Page(&mut Page::of(b"x")),
            Arg::Number(1),
            Arg::Number(keyring),
        ],
    )?;
    Ok(added.cast_signed())
}

fn keyctl(args: &[i64]) -> io::Result<()> {
    make(Call::KEYCTL, args).map(drop)
}
