//! Which of Landlock's known faults this kernel is known to have mended, and which not (landlock(7), "Errata").

use landlock::{ABI, BitFlags, Erratum};

/// `LANDLOCK_CREATE_RULESET_ERRATA`.
const ERRATA: libc::c_uint = 2;

/// For a status line, of a kernel with this ABI: `errata fixed 1 2, not fixed 3`.
pub(crate) fn errata(abi: u32) -> String {
    words(abi, current())
}

/// Bit n - 1: number n is mended; `None` where the kernel does not tell. The question came after the ABI's and was ported back.
fn current() -> Option<u32> {
    let no_attributes = std::ptr::null::<libc::c_void>();
    // SAFETY: with this flag the call takes no attributes (null, size 0) and only returns a number.
    let bits =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, no_attributes, 0_usize, ERRATA) };
    u32::try_from(bits).ok()
}

fn words(abi: u32, fixed: Option<u32>) -> String {
    let concerns = concerning(abi);
    let Some(fixed) = fixed else {
        return format!("errata unknown (this kernel does not tell): {}", numbers(concerns));
    };
    let mut words = format!("errata fixed {}", numbers(fixed));
    if concerns & !fixed != 0 {
        words.push_str(&format!(", not fixed {}", numbers(concerns & !fixed)));
    }
    words
}

/// Those that bear on what this ABI offers, as far as this build knows them.
fn concerning(abi: u32) -> u32 {
    let abi = ABI::from(i32::try_from(abi).unwrap_or(i32::MAX));
    BitFlags::<Erratum>::from(abi).bits()
}

fn numbers(bits: u32) -> String {
    let numbers: Vec<String> = (0..u32::BITS)
        .filter(|bit| bits >> bit & 1 == 1)
        .map(|bit| (bit + 1).to_string())
        .collect();
    if numbers.is_empty() { "none".to_owned() } else { numbers.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_fixed_is_named_where_it_bears_on_what_the_kernel_offers() {
        assert_eq!(words(7, Some(0b111)), "errata fixed 1 2 3");
        assert_eq!(words(7, Some(0b1011)), "errata fixed 1 2 4, not fixed 3");
        assert_eq!(words(3, Some(0)), "errata fixed none, not fixed 3");
        assert_eq!(words(5, None), "errata unknown (this kernel does not tell): 1 3");
        assert_eq!(words(99, Some(0)), "errata fixed none, not fixed 1 2 3");
    }
}
