//! A session's name follows from its key.

use casemate_protocol::key::Key;

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// Characters of five bits: 130 bits of the digest, against which no two keys are found.
const LENGTH: usize = 26;

/// The name of a key's `WorkerSession`: one key, one name, so that two allocators that both make it make one.
#[must_use]
pub fn name_of(key: &Key) -> String {
    let digest = key.digest();
    let bits = digest.bytes().flat_map(|hex| {
        let nibble = char::from(hex).to_digit(16).expect("hexadecimal");
        (0..4).rev().map(move |bit| usize::from(nibble >> bit & 1 == 1))
    });
    let bits: Vec<usize> = bits.take(LENGTH * 5).collect();
    let letters = bits
        .chunks(5)
        .map(|five| char::from(ALPHABET[five.iter().fold(0, |number, bit| number * 2 + bit)]));
    std::iter::once('k').chain(std::iter::once('-')).chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_its_keys_alone_and_a_dns_label() {
        let key = |agent: &str, platform: &str| Key {
            tenant: "t".into(),
            agent: agent.into(),
            platform: platform.into(),
            thread: "1".into(),
        };
        let name = name_of(&key("ab", "c"));
        assert_eq!(name, name_of(&key("ab", "c")));
        assert_ne!(name, name_of(&key("a", "bc")));
        assert_eq!(name.len(), 28);
        assert!(name[2..].bytes().all(|byte| ALPHABET.contains(&byte)), "{name}");
    }

    #[test]
    fn it_is_the_head_of_the_digest_in_base32() {
        let key =
            Key { tenant: "t".into(), agent: "a".into(), platform: "p".into(), thread: "1".into() };
        let number = u128::from_str_radix(&key.digest()[..32], 16).unwrap();
        let expected: String = (0..25)
            .map(|place| {
                char::from(ALPHABET[usize::try_from(number >> (123 - 5 * place) & 31).unwrap()])
            })
            .collect();
        assert_eq!(name_of(&key)[2..27], expected);
    }
}
