//! Access lists (acl(5)) that were put on what is ours: an agent of tier `domain` may do so by a known path, and a mode that looks right
//! lets in whoever the list names. The owner's own rights are the mode's, no list's mask takes them away.

use std::io;

use rustix::fs::{getxattr, removexattr};
use rustix::io::Errno;

/// Who may, and what whatever is made in a directory begins with.
const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
/// The owning group's entry (linux/posix_acl.h).
const GROUP_OBJ: u16 = 0x04;
/// A version, and a tag, rights and an id for each entry, little-endian (linux/posix_acl_xattr.h).
const HEAD: usize = 4;
const ENTRY: usize = 8;
/// Room for 127 entries. Of a longer list the group's own entry is not looked for.
const MOST: usize = HEAD + 127 * ENTRY;

/// What is on a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lists {
    /// The rights of the owning group by itself, 0 to 7; `None` where the mode says them.
    pub(crate) group: Option<u32>,
}

/// The lists of a path, which is followed; `None` where there are none, or the file system has none.
pub(crate) fn of(path: &str) -> io::Result<Option<Lists>> {
    let mut list = [0; MOST];
    let group = match read(path, ACCESS, &mut list)? {
        Found::List(length) => Some(group(list.get(..length).unwrap_or_default())),
        Found::Longer => Some(0),
        Found::None => None,
    };
    let any = group.is_some() || !matches!(read(path, DEFAULT, &mut list)?, Found::None);
    Ok(any.then_some(Lists { group }))
}

/// Takes both away. What the list's mask was, is the mode's group rights from then on (chmod(2) sets either).
pub(crate) fn remove(path: &str) -> io::Result<()> {
    for name in [ACCESS, DEFAULT] {
        match removexattr(path, name) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

enum Found {
    None,
    List(usize),
    Longer,
}

fn read(path: &str, name: &str, list: &mut [u8; MOST]) -> io::Result<Found> {
    match getxattr(path, name, &mut list[..]) {
        Ok(length) => Ok(Found::List(length)),
        Err(Errno::RANGE) => Ok(Found::Longer),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(Found::None),
        Err(error) => Err(error.into()),
    }
}

fn group(list: &[u8]) -> u32 {
    let mut entries = list.get(HEAD..).unwrap_or_default().chunks_exact(ENTRY);
    let found = entries.find_map(|entry| match *entry {
        [a, b, c, d, ..] if u16::from_le_bytes([a, b]) == GROUP_OBJ => {
            Some(u16::from_le_bytes([c, d]))
        }
        _ => None,
    });
    u32::from(found.unwrap_or(0)) & 0o7
}

#[cfg(test)]
pub(crate) mod tests {
    use rustix::fs::{XattrFlags, setxattr};

    use super::*;

    /// All rights to uid 65534, what is given to the owner and to the group, and as the mask all.
    pub(crate) fn list(owner: u16, group: u16) -> Vec<u8> {
        let entry = |tag: u16, rights: u16, id: u32| {
            [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        let nobody = u32::MAX;
        [
            2_u32.to_le_bytes().to_vec(),
            entry(0x01, owner, nobody),
            entry(0x02, 7, 65_534),
            entry(GROUP_OBJ, group, nobody),
            entry(0x10, 7, nobody),
            entry(0x20, 0, nobody),
        ]
        .concat()
    }

    /// Whether the file system of a directory has lists at all.
    pub(crate) fn put(path: &str, list: &[u8]) -> bool {
        for name in [ACCESS, DEFAULT] {
            match setxattr(path, name, list, XattrFlags::empty()) {
                Ok(()) => {}
                Err(Errno::OPNOTSUPP) => return false,
                Err(error) => panic!("{error}"),
            }
        }
        true
    }

    #[test]
    fn the_groups_own_rights_are_found_behind_the_mask() {
        assert_eq!(group(&list(7, 5)), 5);
        assert_eq!((group(&[]), group(&list(7, 5)[..20])), (0, 0));
    }
}
