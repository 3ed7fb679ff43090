//! Attacks on a log: every byte, every line, every end.

use proptest::prelude::*;

use super::*;
use crate::tier::Tier;

fn source() -> Source {
    Source { program: "supervisor", version: "0", slot: Some("slot".to_owned()) }
}

/// A small log: its lines, each with its line end, and the head after each.
fn log(lines: usize) -> (Vec<Vec<u8>>, Vec<Head>) {
    let mut last = Head::NONE;
    let mut all = (Vec::new(), Vec::new());
    for at in 0..lines {
        let event = match at % 3 {
            0 => Event::started("supervisor", Tier::Domain, &["landlock abi 7".to_owned()]),
            1 => Event::launched("agent", "/usr/bin/x \"}}\u{1F512}\n", 2, 7),
            _ => Event::turned_away("/acp", "token has expired"),
        };
        let (line, head) = event.seal(&source(), 1_700_000_000_000 + at as u64, last);
        last = head;
        all.0.push(line);
        all.1.push(head);
    }
    all
}

fn verify(bytes: &[u8], anchors: &[Head]) -> Report {
    let mut verifier = Verifier::new(anchors.iter().copied());
    let mut rest = bytes;
    while let Some(end) = memchr::memchr(b'\n', rest) {
        verifier.line(&rest[..end]);
        rest = &rest[end + 1..];
    }
    verifier.finish(rest.len() as u64)
}

#[test]
fn a_log_holds_and_its_lines_are_events() {
    let (lines, heads) = log(6);
    let report = verify(&lines.concat(), &heads);
    assert!(report.holds(), "{report:?}");
    assert_eq!((report.lines, report.first, report.head), (6, 1, heads[5]));
    assert_eq!((report.torn_bytes, report.anchors), (0, 6));
    for line in &lines {
        let value: serde_json::Value = serde_json::from_slice(line).unwrap();
        let number = |name: &str| value[name].as_u64().unwrap();
        assert_eq!(number("type_uid"), number("class_uid") * 100 + number("activity_id"));
        assert_eq!(number("category_uid"), number("class_uid") / 1000);
        assert_eq!(value["metadata"]["version"], "1.5.0");
    }
}

#[test]
fn every_changed_bit_is_found_and_its_line_named() {
    let (lines, heads) = log(4);
    let whole = lines.concat();
    let ends: Vec<usize> = lines
        .iter()
        .scan(0, |at, line| {
            *at += line.len();
            Some(*at)
        })
        .collect();
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut changed = whole.clone();
            changed[at] ^= 1 << bit;
            let line = ends.iter().position(|end| at < *end).unwrap() as u64 + 1;
            let report = verify(&changed, &heads[3..]);
            if at == whole.len() - 1 {
                // Its line end gone, the last line is torn; the anchor tells that it once was whole.
                assert!(report.torn_bytes > 0, "{at}");
                assert_eq!(report.faults, [Fault::Cut { last: 3, anchored: 4 }]);
                continue;
            }
            assert!(report.faults.contains(&Fault::Changed { line }), "{at} {bit}: {report:?}");
        }
    }
}

#[test]
fn every_cut_of_the_end_is_found_against_an_anchor_and_only_there() {
    let (lines, heads) = log(4);
    let whole = lines.concat();
    for length in 0..whole.len() {
        let kept = &whole[..length];
        let left = kept.iter().filter(|byte| **byte == b'\n').count() as u64;
        let report = verify(kept, &heads[3..]);
        assert_eq!(report.faults, [Fault::Cut { last: left, anchored: 4 }], "{length}");
        // A crash leaves the same, so without an anchor it is no fault; but a torn line is told of.
        let report = verify(kept, &[]);
        assert!(report.holds());
        assert_eq!(report.torn_bytes == 0, length == 0 || kept.ends_with(b"\n"), "{length}");
    }
}

#[test]
fn every_missing_repeated_or_moved_line_is_found_and_named() {
    let (lines, _) = log(6);
    let number = |at: usize| at as u64 + 1;
    for one in 0..6 {
        let mut without = lines.clone();
        without.remove(one);
        let report = verify(&without.concat(), &[]);
        let wanted = match one {
            0 => vec![Fault::Beheaded { first: 2 }],
            5 => vec![],
            _ => {
                vec![Fault::Missing { line: number(one), from: number(one), through: number(one) }]
            }
        };
        assert_eq!(report.faults, wanted, "without {one}");
        for other in 0..=6 {
            let mut twice = lines.clone();
            twice.insert(other, lines[one].clone());
            let report = verify(&twice.concat(), &[]);
            assert!(!report.holds(), "{one} again at {other}");
        }
        for other in 0..6 {
            if one == other {
                continue;
            }
            let mut swapped = lines.clone();
            swapped.swap(one, other);
            let report = verify(&swapped.concat(), &[]);
            assert!(!report.holds(), "{one} and {other} swapped");
        }
    }
}

#[test]
fn a_log_that_was_written_anew_holds_by_itself_and_not_against_an_anchor() {
    let (mut lines, heads) = log(4);
    let (forged, head) = Event::detached(1).seal(&source(), 5, heads[1]);
    lines[2] = forged;
    assert_eq!(verify(&lines.concat(), &[]).faults, [Fault::Replaced { line: 3 }]);
    let (next, _) = Event::detached(2).seal(&source(), 6, head);
    lines[3] = next;
    assert!(verify(&lines.concat(), &heads[..2]).holds());
    assert_eq!(verify(&lines.concat(), &heads[2..3]).faults, [Fault::Rewritten { seq: 3 }]);
}

#[test]
fn a_log_that_begins_late_holds_where_a_rotation_says_so() {
    let (lines, heads) = log(4);
    let (rotation, head) = Event::rotated(Some(2)).seal(&source(), 9, heads[3]);
    let mut late = lines[2..].to_vec();
    assert_eq!(verify(&late.concat(), &[]).faults, [Fault::Beheaded { first: 3 }]);
    late.push(rotation.clone());
    assert!(verify(&late.concat(), &[head]).holds());
    late.remove(0);
    assert_eq!(verify(&late.concat(), &[]).faults, [Fault::Beheaded { first: 4 }]);
    // The words of others do not count as a rotation.
    let words = "x\"dropped_through\":3,".to_owned();
    let (line, _) = Event::launched("agent", &words, 1, 1).seal(&source(), 9, heads[3]);
    let late = [lines[3].clone(), line];
    assert_eq!(verify(&late.concat(), &[]).faults, [Fault::Beheaded { first: 4 }]);
}

#[test]
fn heads_are_one_text_each() {
    let (_, heads) = log(1);
    let text = heads[0].to_string();
    assert_eq!(text.parse(), Ok(heads[0]));
    for wrong in [
        "",
        ":",
        "1:",
        &format!("0:{}", "0".repeat(64)),
        &format!("+1:{}", "0".repeat(64)),
        &format!("01:{}", "0".repeat(64)),
        &text.to_uppercase(),
        &format!("{text}0"),
    ] {
        assert_eq!(wrong.parse::<Head>(), Err(InvalidHead), "{wrong}");
    }
}

proptest! {
    /// Whatever is done to a log within its lines, it is another log and is found out against its head, or it is the same.
    #[test]
    fn no_edit_is_missed(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0u8..4, any::<u8>()), 1..6),
    ) {
        let (lines, heads) = log(5);
        let whole = lines.concat();
        let mut edited = whole.clone();
        for (at, what, byte) in edits {
            let at = at.index(edited.len().max(1));
            match what {
                0 if at < edited.len() => edited[at] = byte,
                1 => edited.insert(at, byte),
                2 if at < edited.len() => drop(edited.remove(at)),
                _ => edited.truncate(at),
            }
        }
        let report = verify(&edited, &heads[4..]);
        let starts_whole = edited.starts_with(&whole) && !edited[whole.len()..].contains(&b'\n');
        prop_assert_eq!(report.holds(), starts_whole, "{:?}", report);
    }

    #[test]
    fn no_bytes_are_a_panic(lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8)) {
        let mut verifier = Verifier::new([]);
        lines.iter().for_each(|line| verifier.line(line));
        let report = verifier.finish(0);
        prop_assert_eq!(report.holds(), lines.is_empty());
    }
}
