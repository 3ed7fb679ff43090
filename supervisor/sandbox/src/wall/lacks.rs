//! What a Landlock ABI does not restrict, of all that this build knows (landlock(7)). Pure.

/// From which ABI on, and what.
const SINCE: [(u32, &str); 8] = [
    (2, "moves between directories (always refused)"),
    (3, "truncation"),
    (4, "tcp ports"),
    (5, "ioctl on device files"),
    (6, "signals and abstract sockets"),
    (7, "the log (no flags for it)"),
    (9, "connections to pathname sockets"),
    (10, "udp ports"),
];

/// One clause for a report; `None`: the kernel has all that this build uses. ABI 8 is not in the list: it restricts all
/// threads of a process at once, and walls are put around single threads that have no others beside them.
pub(crate) fn lacks(abi: u32) -> Option<String> {
    let missing: Vec<String> = SINCE
        .iter()
        .filter(|(since, _)| abi < *since)
        .map(|(since, what)| format!("{what} (abi {since})"))
        .collect();
    (!missing.is_empty()).then(|| format!("does not restrict {}", missing.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_the_abi_that_has_it() {
        assert_eq!(lacks(10), None);
        assert_eq!(lacks(9).unwrap(), "does not restrict udp ports (abi 10)");
        let seven = "does not restrict connections to pathname sockets (abi 9), udp ports (abi 10)";
        assert_eq!(lacks(7).unwrap(), seven);
        assert_eq!(lacks(8).unwrap(), seven);
        assert!(lacks(1).unwrap().contains("truncation (abi 3)"));
    }
}
