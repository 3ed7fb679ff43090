//! What inotify tells of a folder that may not be listed: the names that come and go.

use std::io;
use std::mem::MaybeUninit;
use std::path::Path;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::attempt::Report;

const LOOK: Duration = Duration::from_millis(5);

/// A line when it watches, and one for each name, until the file `stop` is there and nothing more comes.
pub(crate) fn names(folder: &Path, stop: &Path, report: &mut Report<'_>) {
    let target = folder.display().to_string();
    let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
    let watching = inotify::init(flags).and_then(|watcher| {
        inotify::add_watch(&watcher, folder, WatchFlags::ALL_EVENTS)?;
        Ok(watcher)
    });
    let Ok(watcher) = watching.as_ref() else {
        report.result("watch its folder", &target, watching.map_err(io::Error::from));
        return;
    };
    report.result("watch its folder", &target, Ok::<_, io::Error>(()));
    let mut space = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(watcher, &mut space);
    loop {
        match reader.next() {
            Ok(event) => {
                if let Some(name) = event.file_name() {
                    report.say("learn a name", &target, &name.to_string_lossy(), "");
                }
                let lost = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
                if lost {
                    report.say("learn a name", &target, "overflow", "");
                }
            }
            Err(Errno::AGAIN) if stop.exists() => return,
            Err(Errno::AGAIN) => std::thread::sleep(LOOK),
            Err(error) => {
                report.result("learn a name", &target, Err::<(), _>(error));
                return;
            }
        }
    }
}
