//! Where `conformance/supervisor-calls` asks for it, each supervisor is started below strace(1), in a folder of its own.
//!
//! strace is nobody's parent here (`-D`), so that the supervisor keeps its number, and lets go of each process that becomes another
//! program: traced are the supervisor's own processes, at the cost of their calls alone, and no agent, git or attacker of the probe.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// Names the folder of all traces.
const TRACES: &str = "CASEMATE_TRACES";

/// What has to stand before the program; nothing, where no trace is wanted. The folder's name begins with `what` is traced, by
/// which the reader (`casemate-sandbox`'s example `supervisor-calls`) knows whose list is worn there.
pub(crate) fn before(what: &str) -> Vec<String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let Some(traces) = std::env::var_os(TRACES) else { return Vec::new() };
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = Path::new(&traces).join(format!("{what}-{}-{number}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    // The supervisor may be another user's.
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    let file = folder.join("trace").display().to_string();
    "strace -D -f -ff -q -b execve --decode-pids=pidns -X raw -e raw=!clone -e signal=none -o"
        .split(' ')
        .map(str::to_owned)
        .chain([file])
        .collect()
}
