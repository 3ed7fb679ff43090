//! Strings of JSON (RFC 8259 section 7): from the opening quote past the closing one.
//!
//! Nearly every byte of a conversation stands in one, so they are passed over in blocks: which bytes of a block mean something is
//! found for all of them at once, and only what follows a backslash is looked at by itself.

use wide::u8x16;

use super::walk::{Bad, What};

/// How many bytes are looked at at once: as many as a mask has bits.
const BLOCK: usize = 64;

/// As many escapes of a block as are looked at one by one.
const FEW: u32 = 6;

/// Where the string ends whose opening quote is at `open`: past its closing quote.
pub(super) fn end(text: &[u8], open: usize) -> Result<usize, Bad> {
    let mut at = open + 1;
    while let Some(block) = text[at..].first_chunk::<BLOCK>() {
        match pass(block, &text[at..]) {
            Pass::On(length) => at += length,
            Pass::Over(length) => return Ok(at + length),
            Pass::Wrong => break,
        }
    }
    by_eight(text, at)
}

/// What a block is to the string that it stands in.
enum Pass {
    /// The string goes on after so many bytes.
    On(usize),
    /// It is over after so many.
    Over(usize),
    /// There is something in it that no string has.
    Wrong,
}

/// A block at whose beginning nothing is escaped; `text` begins with it.
#[inline]
fn pass(block: &[u8; BLOCK], text: &[u8]) -> Pass {
    let (stops, backslashes) = masks(block);
    let (mut wrong, mut escaped, mut length) = (0, 0, BLOCK);
    if backslashes != 0 {
        escaped = after_backslash(backslashes);
        // One by one where they are few, which is what text has.
        let mut single = escaped;
        if escaped.count_ones() > FEW {
            let (plain, unicode) = escapes(block);
            wrong = escaped & !(plain | unicode);
            // Rare, and four digits more to look at.
            single &= unicode;
        }
        while single != 0 {
            let at = single.trailing_zeros() as usize;
            if !is_escape(&text[at..]) {
                wrong |= 1 << at;
            }
            single &= single - 1;
        }
        // The last byte is a backslash that escapes what is behind the block.
        if backslashes & !escaped & LAST != 0 {
            length += 1;
            if !is_escape(&text[BLOCK..]) {
                wrong |= LAST;
            }
        }
    }
    let end = (stops & !escaped).trailing_zeros();
    match block.get(end as usize) {
        _ if wrong.trailing_zeros() < end => Pass::Wrong,
        Some(b'"') => Pass::Over(end as usize + 1),
        Some(_) => Pass::Wrong,
        None => Pass::On(length),
    }
}

/// The bit of a block's last byte.
const LAST: u64 = 1 << (BLOCK - 1);

/// The bytes that a backslash is before, where that one is not itself behind one: of each run of backslashes the second, the fourth and
/// so on, and what follows a run of odd length. A run's carry, when it is taken from a number that has all odd bits, ends where the
/// run does, and which bits it has flipped tells the parity (J. Keiser and D. Lemire, Parsing Gigabytes of JSON per Second,
/// section 3.1.1).
#[inline]
fn after_backslash(backslashes: u64) -> u64 {
    const ODD: u64 = 0xaaaa_aaaa_aaaa_aaaa;
    let next = backslashes << 1;
    ((next | ODD).wrapping_sub(backslashes) ^ ODD) ^ backslashes
}

/// A bit each for quotes and control characters, and for backslashes.
#[inline]
fn masks(block: &[u8; BLOCK]) -> (u64, u64) {
    let (mut stops, mut backslashes) = (0, 0);
    for (at, part) in block.as_chunks::<16>().0.iter().enumerate() {
        let part = u8x16::new(*part);
        let quote = part.simd_eq(u8x16::splat(b'"'));
        let control = part.min(u8x16::splat(0x1f)).simd_eq(part);
        stops |= u64::from((quote | control).to_bitmask()) << (16 * at);
        let backslash = part.simd_eq(u8x16::splat(b'\\'));
        backslashes |= u64::from(backslash.to_bitmask()) << (16 * at);
    }
    (stops, backslashes)
}

/// A bit each for what may follow a backslash by itself, and for the letter of a code point.
#[inline]
fn escapes(block: &[u8; BLOCK]) -> (u64, u64) {
    let (mut plain, mut unicode) = (0, 0);
    for (at, part) in block.as_chunks::<16>().0.iter().enumerate() {
        let part = u8x16::new(*part);
        let is = |byte| part.simd_eq(u8x16::splat(byte));
        let mark = is(b'"') | is(b'\\') | is(b'/');
        let letter = is(b'b') | is(b'f') | is(b'n') | is(b'r') | is(b't');
        plain |= u64::from((mark | letter).to_bitmask()) << (16 * at);
        unicode |= u64::from(is(b'u').to_bitmask()) << (16 * at);
    }
    (plain, unicode)
}

/// Whether this may follow a backslash.
#[inline]
fn is_escape(rest: &[u8]) -> bool {
    match rest {
        [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => true,
        [b'u', digits @ ..] => {
            digits.first_chunk::<4>().is_some_and(|four| four.iter().all(u8::is_ascii_hexdigit))
        }
        _ => false,
    }
}

/// The same with exact places of what is wrong, and for what is left at a text's end; `at` is within the string.
fn by_eight(text: &[u8], mut at: usize) -> Result<usize, Bad> {
    let bad = |what, at| Err(Bad { what, at });
    loop {
        while let Some(eight) = text.get(at..).and_then(<[u8]>::first_chunk) {
            let special = special(u64::from_le_bytes(*eight));
            if special != 0 {
                at += special.trailing_zeros() as usize / 8;
                break;
            }
            at += 8;
        }
        match text.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => match text.get(at + 1) {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => at += 2,
                Some(b'u') => {
                    let digits = text[at + 2..].iter().take(4);
                    let count = digits.take_while(|byte| byte.is_ascii_hexdigit()).count();
                    at += 2 + count;
                    if count < 4 {
                        let ends = at == text.len();
                        return bad(if ends { What::Ends } else { What::Syntax }, at);
                    }
                }
                Some(_) => return bad(What::Syntax, at + 1),
                None => return bad(What::Ends, at + 1),
            },
            Some(0..0x20) => return bad(What::Syntax, at),
            Some(_) => at += 1,
            None => return bad(What::Ends, at),
        }
    }
}

/// The high bit of the first byte (and perhaps of later ones) that is a quote, a backslash or a control character; 0 where
/// none is (S. E. Anderson, Bit Twiddling Hacks, "haszero" and "hasless").
fn special(eight: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let control = eight.wrapping_sub(0x20 * ONES) & !eight;
    let quote = zero(eight ^ (u64::from(b'"') * ONES));
    let backslash = zero(eight ^ (u64::from(b'\\') * ONES));
    (quote | backslash | control) & (0x80 * ONES)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_byte_that_means_something_in_a_string_is_seen_wherever_it_stands() {
        for byte in 0..=255 {
            for at in 0..8 {
                let mut eight = *b"abcd\x7f\xff\x80z";
                eight[at] = byte;
                let wanted = matches!(byte, b'"' | b'\\' | 0..0x20);
                let special = special(u64::from_le_bytes(eight));
                assert_eq!(special != 0, wanted, "{byte} at {at}");
                assert!(!wanted || special.trailing_zeros() as usize / 8 == at);
            }
            for at in 0..BLOCK {
                let mut block = [b'\x7f'; BLOCK];
                (block[0], block[BLOCK - 1]) = (0xff, 0x80);
                block[at] = byte;
                let bit = |is: bool| u64::from(is) << at;
                let wanted = (bit(matches!(byte, b'"' | 0..0x20)), bit(byte == b'\\'));
                assert_eq!(masks(&block), wanted, "{byte} at {at}");
                let plain = byte != b'u' && is_escape(&[byte]);
                assert_eq!(escapes(&block), (bit(plain), bit(byte == b'u')), "{byte} at {at}");
            }
        }
    }

    #[test]
    fn an_escape_counts_on_both_sides_of_a_block_and_across_its_end() {
        for before in BLOCK - 8..BLOCK + 8 {
            for (escape, is_right) in [
                (r#"\""#, true),
                (r"\\", true),
                (r#"\\\""#, true),
                (r"\u00e9", true),
                (r"\u00g9", false),
                (r"\x", false),
                ("\n", false),
            ] {
                let text = format!("\"{}{escape}{}\"", "x".repeat(before), "y".repeat(2 * BLOCK));
                let wanted = is_right.then_some(text.len());
                let text = format!("{text},{}", "\\".repeat(BLOCK));
                assert_eq!(end(text.as_bytes(), 0).ok(), wanted, "{escape} after {before}");
            }
        }
    }

    /// Long enough for blocks, and full of what matters.
    fn texts() -> impl Strategy<Value = Vec<u8>> {
        let part = prop_oneof![
            6 => "[a-z \u{e9}]{0,20}".prop_map(String::into_bytes),
            4 => prop::sample::select(vec![
                r#"\""#, r"\\", r"\n", r"\/", r"\u00e9", r"\uD83D", r"\", r"\\\", r"\u00", r"\x", "\"", "\n", "\u{7f}",
            ]).prop_map(|part: &str| part.as_bytes().to_vec()),
        ];
        prop::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn blocks_find_what_a_walk_by_eight_finds(text in texts(), open in 0usize..70) {
            let text = [&vec![b'.'; open][..], b"\"", &text].concat();
            prop_assert_eq!(end(&text, open), by_eight(&text, open + 1));
        }
    }
}
