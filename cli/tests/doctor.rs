//! `casemate doctor --json` as a program reads it: the whole catalogue was tried, and nothing that the tier promises is broken.

#![allow(
    clippy::unwrap_used,
    reason = "a test ends at the first thing that is not as it should be"
)]

mod host;
mod house;

use std::collections::BTreeSet;

use casemate_protocol::kernel::KernelReport;
use casemate_protocol::matrix::{Matrix, Verdict};
use house::House;

#[test]
fn the_matrix_has_every_attack_of_the_catalogue_and_nothing_is_broken() {
    let house = House::new();
    let report = house.json(&["doctor", "--json", "--tier", "domain"]);
    let kernel: KernelReport = serde_json::from_value(report["kernel"].clone()).unwrap();
    let matrix: Matrix = serde_json::from_value(report["matrix"].clone()).unwrap();
    let catalogue: BTreeSet<&str> =
        casemate_inside::catalogue::attacks().map(|attack| attack.id).collect();
    assert_eq!(Some(matrix.tier), kernel.tier);
    assert_eq!(usize::try_from(matrix.total()).unwrap(), catalogue.len(), "{matrix:?}");
    assert!(matrix.total() >= 200, "{}", matrix.total());
    assert_eq!(report["ok"], true, "{report}");
    for verdict in [Verdict::Broken, Verdict::Unproven, Verdict::Open] {
        assert_eq!(matrix.count(verdict), 0, "{}", matrix.table());
    }
    // What does not hold is named, by the catalogue's names, as often as it is counted.
    for row in matrix.rows.iter().filter(|row| row.verdict != Verdict::Holds) {
        assert_eq!(usize::try_from(row.count).unwrap(), row.attacks.len(), "{row:?}");
        assert!(row.attacks.iter().all(|id| catalogue.contains(id.as_str())), "{row:?}");
    }
}
