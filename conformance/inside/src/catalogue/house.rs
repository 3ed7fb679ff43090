//! On the files of casemate itself: what its programs read again, and trust.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::symlink;

use super::attack::{Attack, Defence::FileRules, Run, Target};
use super::files::{read, write};

const fn house(id: &'static str, does: &'static str, source: &'static str, run: Run) -> Attack {
    Attack::new(Target::House, id, does, source, run)
        .by(&[FileRules])
        .domain(&["EACCES"])
        .namespace(&["ENOENT"])
}

pub(super) const ATTACKS: &[Attack] = &[
    house("endpoint-read", "reads the allocator's address and token", "SECURITY.md", |shot| {
        read(&shot.tree("house/endpoint"))
    }),
    house(
        "endpoint-forge",
        "puts an address of its own in the endpoint's place",
        "SECURITY.md",
        |shot| fs::rename(shot.own_file("endpoint")?, shot.tree("house/endpoint")),
    ),
    house("seed-read", "reads the seed that signs every token", "SECURITY.md", |shot| {
        read(&shot.tree("house/seed"))
    }),
    house("seed-replace", "replaces the seed by one that it knows", "SECURITY.md", |shot| {
        write(&shot.tree("house/seed"), OpenOptions::new().write(true).truncate(true))
    }),
    house("store-overwrite", "rewrites the record of sessions", "SECURITY.md", |shot| {
        write(&shot.tree("house/store"), OpenOptions::new().write(true))
    }),
    house("profile-plant", "adds a profile that grants everything", "SECURITY.md", |shot| {
        File::create_new(shot.tree("house/profiles/mine.toml")).map(drop)
    }),
    house("values-read", "reads what another session was handed", "SECURITY.md", |shot| {
        read(&shot.tree("house/values/session"))
    }),
    house("values-list", "lists the sessions that were handed something", "SECURITY.md", |shot| {
        fs::read_dir(shot.tree("house/values")).map(drop)
    }),
    house("lock-hold", "holds the lock by which a worker is known to live", "flock(2)", |shot| {
        let lock = File::open(shot.tree("house/lock"))?;
        Ok(rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive)?)
    }),
    house("lock-remove", "removes the lock, so that a second worker starts", "flock(2)", |shot| {
        fs::remove_file(shot.tree("house/lock"))
    }),
    house("journal-forge", "appends a turn to the supervisor's journal", "SECURITY.md", |shot| {
        write(&shot.tree("house/state/journal"), OpenOptions::new().append(true))
    }),
    house("journal-empty", "empties the supervisor's journal", "truncate(2)", |shot| {
        Ok(nix::unistd::truncate(&shot.tree("house/state/journal"), 0)?)
    }),
    house("state-symlink", "plants a symlink where the supervisor will write", "CWE-59", |shot| {
        symlink("/etc/passwd", shot.tree("house/state/saved.json"))
    }),
    house("state-swap", "swaps the state's folder for one of its own", "renameat2(2)", |shot| {
        let (own, state) = (shot.own_folder()?, shot.tree("house/state"));
        let swap = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(rustix::fs::CWD, &own, rustix::fs::CWD, &state, swap)?;
        Ok(rustix::fs::renameat_with(rustix::fs::CWD, own, rustix::fs::CWD, state, swap)?)
    }),
];
