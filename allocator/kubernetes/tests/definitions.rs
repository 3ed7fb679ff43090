//! The committed definitions are those of the code.

use casemate_kubernetes::resource::definitions;

/// Not in the chart's `crds/`: Helm installs what is there once and never again, and an upgrade would keep the old ones.
const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/casemate/files/crds");

/// To write them anew: `EXPECTORATE=overwrite cargo test -p casemate-kubernetes --test definitions`.
#[test]
fn the_chart_has_the_definitions_of_the_code() {
    for definition in definitions() {
        let path = format!("{DIRECTORY}/{}.yaml", definition.spec.names.plural);
        // Defaults are in the order of their members or in that of their names, by what other crates of a build ask of serde_json.
        let mut definition = serde_json::to_value(&definition).unwrap();
        definition.sort_all_objects();
        let yaml = serde_saphyr::to_string(&definition).unwrap();
        expectorate::assert_contents(path, &yaml);
    }
}
