//! Whose users this process's user ids are.

/// Whether this process is in a user namespace other than the machine's first one: a worker's own in tier `namespace`, a
/// Pod's with `hostUsers: false`. There a user id, and what the kernel counts by it, is nobody else's.
#[must_use]
pub fn in_own_namespace() -> bool {
    std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !is_the_first(&map))
}

/// user_namespaces(7): the first namespace maps all ids to themselves.
fn is_the_first(map: &str) -> bool {
    map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::is_the_first;

    #[test]
    fn only_the_map_of_everything_to_itself_is_the_first_namespaces() {
        assert!(is_the_first("         0          0 4294967295\n"));
        assert!(!is_the_first("      1000       1000          1\n"));
        assert!(!is_the_first("         0     100000      65536\n"));
        assert!(!is_the_first(""));
    }
}
