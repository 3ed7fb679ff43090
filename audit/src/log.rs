//! The writer of a log.
//!
//! Owns both files for its life; that there is one writer is its caller's to see to (a slot's lock, a home's lock). What
//! always holds: the file ends with a whole line after each call that returned, and each line follows the one before.
//!
//! - **Killed in the middle of a write**: half a line is left. The next [`Log::open`] takes it away and says so.
//! - **Power lost**: a line that was followed by [`Log::sync`] is there; of those behind it, any may be missing.
//! - **Disk full**: the line is taken back, counted, and told of by the next line that fits (`lost_before`).

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use casemate_protocol::audit::{Event, Head, Limiter, Line, Source};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat, fstatat};

use crate::{FILE, FILE_BEFORE};

/// A file that is longer is followed by a new one: two of them hold about 80,000 events.
const LONGEST_FILE: u64 = 32 * 1024 * 1024;
/// No line is longer: words of others are cut.
pub(crate) const LONGEST_LINE: u64 = 64 * 1024;

/// Why a log cannot be continued.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file or its directory.
    #[error(
        "{FILE} cannot be opened or written; check its owner and mode and the space on its disk"
    )]
    Io(#[from] io::Error),
    /// The last line is not what a log of ours ends with.
    #[error(
        "{FILE} does not end with a line that holds: see what `casemate audit verify` says of it, keep a copy, and move it away"
    )]
    Broken,
}

/// A log, open for writing.
#[derive(Debug)]
pub struct Log {
    directory: OwnedFd,
    file: File,
    length: u64,
    longest: u64,
    source: Source,
    head: Head,
    /// The head when everything before it was last known to be on the disk.
    durable: Head,
    /// What a rotation would drop: the last number in [`FILE_BEFORE`].
    before: Option<u64>,
    limiter: Limiter,
    since: Instant,
    lost: u64,
    lost_untold: u64,
}

// === impl Log ===

impl Log {
    /// Opens or makes the log in a directory, whose descriptor it keeps.
    ///
    /// # Errors
    /// [`OpenError`]; nothing was changed then but, maybe, the file's mode.
    pub fn open(directory: OwnedFd, source: Source) -> Result<Self, OpenError> {
        Self::open_with(directory, source, LONGEST_FILE)
    }

    pub(crate) fn open_with(
        directory: OwnedFd,
        source: Source,
        longest: u64,
    ) -> Result<Self, OpenError> {
        let (file, mode) = open_file(&directory)?;
        let (mut head, end) = end_of(&file)?;
        let before = match read_only(&directory, FILE_BEFORE)? {
            Some(before) => end_of(&before)?.0,
            None => Head::NONE,
        };
        if end == 0 {
            // A rotation that was cut off between its two steps, or a new log.
            head = before;
        }
        let torn = file.metadata()?.len() - end;
        file.set_len(end)?;
        let mut log = Self {
            directory,
            file,
            length: end,
            longest,
            source,
            head,
            durable: Head::NONE,
            before: (before.seq > 0).then_some(before.seq),
            limiter: Limiter::default(),
            since: Instant::now(),
            lost: 0,
            lost_untold: 0,
        };
        if mode != 0o600 {
            log.file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
            log.append(&Event::mode_mended(mode))?;
        }
        if torn > 0 {
            log.append(&Event::recovered(torn))?;
        }
        Ok(log)
    }

    /// Writes events that something depends on, and makes them and all before them durable.
    ///
    /// # Errors
    /// The disk's; the last of the events are not in the log then, or not for certain.
    pub fn require(&mut self, events: &[Event]) -> io::Result<()> {
        events.iter().try_for_each(|event| self.append(event))?;
        self.sync()
    }

    /// Writes one event. One that cannot be written is counted, and so are those of a kind that comes in floods.
    pub fn record(&mut self, event: Event) {
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        // Only what a caller or an agent can bring about at will is held back.
        let admitted = match event.code() {
            code @ ("call.refused" | "action.refused") => self.limiter.admit(code, now),
            _ => Some(1),
        };
        if let Some(count) = admitted {
            self.append_or_count(&event.counted(count));
        }
    }

    /// Tells what was only counted: for the end.
    pub fn settle(&mut self) {
        for (code, count) in self.limiter.held() {
            self.append_or_count(&Event::held_back(code, count));
        }
        if let Err(error) = self.sync() {
            tracing::error!(%error, "the end of the audit log may not be on the disk");
        }
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// fsync(2)'s.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.durable != self.head {
            self.file.sync_all()?;
            self.durable = self.head;
        }
        Ok(())
    }

    /// The newest line that is on the disk, for somebody else to keep: never one that a lost power could take back.
    #[must_use]
    pub fn head(&mut self) -> Option<Head> {
        if let Err(error) = self.sync() {
            tracing::error!(%error, "the audit log is not on the disk");
        }
        (self.durable.seq > 0).then_some(self.durable)
    }

    /// Events that could not be written.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn append_or_count(&mut self, event: &Event) {
        if let Err(error) = self.append(event) {
            self.lost += event.count();
            self.lost_untold += event.count();
            tracing::error!(%error, event = event.code(), "the audit log lacks an event: check the volume's space");
        }
    }

    fn append(&mut self, event: &Event) -> io::Result<()> {
        if self.length >= self.longest {
            self.rotate()?;
        }
        let event = event.clone().after_lost(self.lost_untold);
        self.write(&event)?;
        self.lost_untold = 0;
        Ok(())
    }

    fn write(&mut self, event: &Event) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
        let (line, head) = event.seal(&self.source, now, self.head);
        if let Err(error) = self.file.write_all(&line) {
            self.file.set_len(self.length)?;
            return Err(error);
        }
        self.length += line.len() as u64;
        self.head = head;
        Ok(())
    }

    /// What is dropped is said first, in the file that stays: a crash at any point leaves a log that holds.
    fn rotate(&mut self) -> io::Result<()> {
        self.write(&Event::rotated(self.before))?;
        self.file.sync_all()?;
        renameat(&self.directory, FILE, &self.directory, FILE_BEFORE)?;
        self.before = Some(self.head.seq);
        self.file = open_file(&self.directory)?.0;
        self.length = 0;
        // The names.
        File::from(self.directory.try_clone()?).sync_all()
    }
}

/// The file, and the mode that it had.
fn open_file(directory: &OwnedFd) -> io::Result<(File, u32)> {
    let flags = OFlag::O_RDWR
        | OFlag::O_APPEND
        | OFlag::O_CREAT
        | OFlag::O_CLOEXEC
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let mut had = None;
    let opened = match openat(directory.as_fd(), FILE, flags, mode) {
        // By its path an agent of tier `domain` can change the mode, and no more.
        Err(Errno::EACCES) => {
            let found = fstatat(directory.as_fd(), FILE, AtFlags::AT_SYMLINK_NOFOLLOW)?;
            had = Some(found.st_mode & 0o7777);
            fchmodat(directory.as_fd(), FILE, mode, FchmodatFlags::NoFollowSymlink)?;
            openat(directory.as_fd(), FILE, flags, mode)
        }
        opened => opened,
    };
    let file = File::from(opened?);
    let meta = file.metadata()?;
    if meta.is_file() {
        Ok((file, had.unwrap_or(meta.mode() & 0o7777)))
    } else {
        Err(io::Error::other(format!("{FILE} is no plain file")))
    }
}

pub(crate) fn read_only(directory: &OwnedFd, name: &str) -> io::Result<Option<File>> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    match openat(directory.as_fd(), name, flags, Mode::empty()) {
        Ok(file) => Ok(Some(File::from(file))),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// The last whole line's head, and where it ends; a file without a whole line has none and ends at 0.
pub(crate) fn end_of(file: &File) -> Result<(Head, u64), OpenError> {
    let length = file.metadata()?.len();
    let most = LONGEST_LINE * 2;
    let start = length.saturating_sub(most);
    let mut tail = vec![0; usize::try_from(length - start).unwrap_or_default()];
    file.read_exact_at(&mut tail, start)?;
    let Some(end) = tail.iter().rposition(|byte| *byte == b'\n') else {
        // Half of a first line, or more than any line of ours.
        return if start == 0 { Ok((Head::NONE, 0)) } else { Err(OpenError::Broken) };
    };
    let begin = tail[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let line = Line::read(&tail[begin..end]).ok_or(OpenError::Broken)?;
    Ok((line.head, start + end as u64 + 1))
}
