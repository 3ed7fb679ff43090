//! The list of calls, and the one place that makes them.

use std::ffi::CStr;
use std::fmt;
use std::io;

/// What a call reads or fills: one page, aligned as any kernel structure wants it.
#[repr(C, align(4096))]
#[derive(Clone)]
pub struct Page(pub [u8; 4096]);

/// One argument.
#[derive(Debug)]
pub enum Arg<'a> {
    /// A number, sign-extended; not where the call has a pointer, unless 0.
    Number(i64),
    /// Memory that the call reads or fills.
    Page(&'a mut Page),
    /// A text that the call reads.
    Text(&'a CStr),
}

/// A system call of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    number: libc::c_long,
    /// Which arguments are pointers, by bit.
    pointers: u8,
    /// Which arguments say how much is read or filled, by bit.
    lengths: u8,
    /// For a call that is many: which argument chooses, and what may be chosen.
    only: Option<(usize, &'static [i64])>,
}

/// Makes the call; what it returned.
///
/// # Errors
/// The kernel's; `EFAULT` for a number where a pointer belongs, `E2BIG` for a length of more than a page, `EINVAL` for an
/// operation that is not on the list: the kernel is not asked about these.
pub fn call(call: Call, args: &mut [Arg<'_>]) -> io::Result<u64> {
    let mut words = [0_i64; 6];
    if args.len() > words.len() {
        return Err(io::Error::from_raw_os_error(libc::E2BIG));
    }
    for (at, (arg, word)) in args.iter_mut().zip(&mut words).enumerate() {
        let is = |mask: u8| mask & (1 << at) != 0;
        *word = match arg {
            Arg::Number(number) if is(call.pointers) && *number != 0 => {
                return Err(io::Error::from_raw_os_error(libc::EFAULT));
            }
            Arg::Number(number) if is(call.lengths) && !(0..=4096).contains(number) => {
                return Err(io::Error::from_raw_os_error(libc::E2BIG));
            }
            Arg::Number(number) => *number,
            Arg::Page(page) => page.0.as_mut_ptr().expose_provenance().cast_signed() as i64,
            Arg::Text(text) => text.as_ptr().expose_provenance().cast_signed() as i64,
        };
    }
    let [a, b, c, d, e, f] = words;
    if let Some((at, operations)) = call.only
        && !operations.contains(&words[at])
    {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: `Call`s are made in this file only. By its manual page each of them reads and fills memory of this process
    // through the arguments in `pointers` alone, fills none that is a text, and uses no more of each than the lengths
    // in `lengths` say or, where there is none, than a page; where that depends on the operation, `only` lists the
    // operations of which it is true. Pointers are null or of borrowed pages and texts, by the
    // checks above; lengths fit a page. None of the calls changes mappings that exist, or descriptors that Rust owns.
    let result = unsafe { libc::syscall(call.number, a, b, c, d, e, f) };
    u64::try_from(result).map_err(|_| io::Error::last_os_error())
}

const fn plain(number: libc::c_long) -> Call {
    with(number, 0, 0)
}

const fn with(number: libc::c_long, pointers: u8, lengths: u8) -> Call {
    Call { number, pointers, lengths, only: None }
}

// === impl Call ===

impl Call {
    const fn only(self, at: usize, operations: &'static [i64]) -> Self {
        Self { only: Some((at, operations)), ..self }
    }
}

/// The list. The numbers of newer calls are the same on every architecture (Linux `scripts/syscall.tbl`).
#[expect(missing_docs, reason = "each is described by the manual page of its name")]
impl Call {
    pub const ADD_KEY: Self = with(libc::SYS_add_key, 0b00111, 0b01000);
    /// `BPF_MAP_CREATE`.
    pub const BPF: Self = with(libc::SYS_bpf, 0b010, 0b100).only(0, &[0]);
    pub const DELETE_MODULE: Self = with(libc::SYS_delete_module, 0b01, 0);
    pub const FANOTIFY_INIT: Self = plain(libc::SYS_fanotify_init);
    /// `pathname` is the fifth argument.
    pub const FANOTIFY_MARK: Self = with(libc::SYS_fanotify_mark, 0b10000, 0);
    pub const FILE_SETATTR: Self = with(469, 0b00110, 0b01000);
    /// The pointers that it fills are of this process, what it reports of the other is two numbers.
    pub const GET_ROBUST_LIST: Self = with(libc::SYS_get_robust_list, 0b110, 0);
    pub const IO_URING_SETUP: Self = with(libc::SYS_io_uring_setup, 0b10, 0);
    pub const IOPRIO_SET: Self = plain(libc::SYS_ioprio_set);
    pub const KCMP: Self = plain(libc::SYS_kcmp);
    /// `GET_KEYRING_ID`, `REVOKE`, `LINK`, `UNLINK`, `GET_PERSISTENT`: their arguments are numbers.
    pub const KEYCTL: Self = plain(libc::SYS_keyctl).only(0, &[0, 3, 8, 9, 22]);
    /// `JOIN_SESSION_KEYRING`.
    pub const KEYCTL_JOIN: Self = with(libc::SYS_keyctl, 0b10, 0).only(0, &[1]);
    pub const KEXEC_FILE_LOAD: Self = with(libc::SYS_kexec_file_load, 0b01000, 0b00100);
    pub const MIGRATE_PAGES: Self = with(libc::SYS_migrate_pages, 0b1100, 0);
    pub const MOVE_PAGES: Self = with(libc::SYS_move_pages, 0b011100, 0b000010);
    pub const MQ_OPEN: Self = with(libc::SYS_mq_open, 0b1001, 0);
    pub const MQ_TIMEDSEND: Self = with(libc::SYS_mq_timedsend, 0b10010, 0b00100);
    pub const MQ_UNLINK: Self = with(libc::SYS_mq_unlink, 0b1, 0);
    pub const MSGGET: Self = plain(libc::SYS_msgget);
    /// `IPC_RMID`.
    pub const MSGCTL: Self = with(libc::SYS_msgctl, 0b100, 0).only(1, &[0]);
    pub const MSGSND: Self = with(libc::SYS_msgsnd, 0b0010, 0b0100);
    pub const NAME_TO_HANDLE_AT: Self = with(libc::SYS_name_to_handle_at, 0b01110, 0);
    pub const OPEN_BY_HANDLE_AT: Self = with(libc::SYS_open_by_handle_at, 0b010, 0);
    pub const PERF_EVENT_OPEN: Self = with(libc::SYS_perf_event_open, 0b1, 0);
    /// `MADV_COLD`.
    pub const PROCESS_MADVISE: Self = with(libc::SYS_process_madvise, 0b010, 0b100).only(3, &[20]);
    pub const REQUEST_KEY: Self = with(libc::SYS_request_key, 0b0111, 0);
    pub const RT_SIGQUEUEINFO: Self = with(libc::SYS_rt_sigqueueinfo, 0b100, 0);
    pub const RT_TGSIGQUEUEINFO: Self = with(libc::SYS_rt_tgsigqueueinfo, 0b1000, 0);
    pub const SCHED_SETATTR: Self = with(libc::SYS_sched_setattr, 0b010, 0);
    pub const SCHED_SETPARAM: Self = with(libc::SYS_sched_setparam, 0b10, 0);
    pub const SCHED_SETSCHEDULER: Self = with(libc::SYS_sched_setscheduler, 0b100, 0);
    pub const SEMGET: Self = plain(libc::SYS_semget);
    pub const SETPRIORITY: Self = plain(libc::SYS_setpriority);
    pub const SHMGET: Self = plain(libc::SYS_shmget);
    /// With a null address the kernel chooses one that is free.
    pub const SHMAT: Self = with(libc::SYS_shmat, 0b010, 0);
    /// `IPC_RMID`.
    pub const SEMCTL: Self = plain(libc::SYS_semctl).only(2, &[0]);
    /// `IPC_RMID`.
    pub const SHMCTL: Self = with(libc::SYS_shmctl, 0b100, 0).only(1, &[0]);
    pub const SYSLOG: Self = with(libc::SYS_syslog, 0b010, 0b100);
    pub const TGKILL: Self = plain(libc::SYS_tgkill);
    /// `TIOCSTI` and `TIOCLINUX`, which read a byte, and the first with bits that the kernel does not look at.
    pub const IOCTL_TERMINAL: Self =
        with(libc::SYS_ioctl, 0b100, 0).only(1, &[0x5412, 0x541c, 0x1_0000_5412]);
    pub const SETNS: Self = plain(libc::SYS_setns);
    pub const TKILL: Self = plain(libc::SYS_tkill);
    pub const USERFAULTFD: Self = plain(libc::SYS_userfaultfd);
}

// === impl Page ===

impl Page {
    /// Zeroes.
    #[must_use]
    pub fn zeroed() -> Box<Self> {
        Box::new(Self([0; 4096]))
    }

    /// Zeroes behind `bytes`, of which no more than a page is taken.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Box<Self> {
        let mut page = Self::zeroed();
        let length = bytes.len().min(page.0.len());
        page.0[..length].copy_from_slice(&bytes[..length]);
        page
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Page")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_no_pointer_and_a_length_fits_a_page() {
        let errno = |result: io::Result<u64>| result.map_err(|error| error.raw_os_error());
        let wild = call(Call::IO_URING_SETUP, &mut [Arg::Number(8), Arg::Number(0x1000)]);
        assert_eq!(errno(wild), Err(Some(libc::EFAULT)));
        let mut page = Page::zeroed();
        let long = &mut [Arg::Number(3), Arg::Page(&mut page), Arg::Number(5000)];
        assert_eq!(errno(call(Call::SYSLOG, long)), Err(Some(libc::E2BIG)));
        let other = call(Call::KEYCTL, &mut [Arg::Number(11), Arg::Number(0), Arg::Number(0x1000)]);
        assert_eq!(errno(other), Err(Some(libc::EINVAL)));
    }

    #[test]
    fn a_call_returns_what_the_kernel_says() {
        let id = call(Call::SHMGET, &mut [Arg::Number(0), Arg::Number(4096), Arg::Number(0o1600)]);
        let id = i64::try_from(id.unwrap()).unwrap();
        call(Call::SHMCTL, &mut [Arg::Number(id), Arg::Number(0), Arg::Number(0)]).unwrap();
        let none = call(Call::TKILL, &mut [Arg::Number(-5), Arg::Number(0)]).unwrap_err();
        assert_eq!(none.raw_os_error(), Some(libc::EINVAL));
    }
}
