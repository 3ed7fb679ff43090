//! The rules of the definitions: each is seen refusing what it is there for, and admitting what is next to it.
//!
//! Once here, by an evaluator; and on a real API server (`conformance/cluster env` names one), which also holds text against
//! its forms and counts what a rule costs.

mod cases;
mod server;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use casemate_kubernetes::resource::{WorkerProfile, WorkerSession, definitions};
use kube_cel::Validator;
use serde_json::Value;

use cases::{Case, Expected, all};

/// The schema of a kind.
fn schema(kind: &str) -> Value {
    let definition = definitions()
        .into_iter()
        .find(|definition| definition.spec.names.kind == kind)
        .expect("one of ours");
    serde_json::to_value(&definition.spec.versions[0].schema).expect("a schema is JSON")
        ["openAPIV3Schema"]
        .take()
}

/// The messages of the rules that refuse it.
fn refusals(case: &Case) -> Vec<String> {
    let schema = schema(case.kind());
    match Validator::new().validate(&schema, &case.new, case.old.as_ref()) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.into_iter().map(|error| error.message).collect(),
    }
}

/// Every case and what refuses it, evaluated once.
static FOUND: LazyLock<Vec<(Case, Vec<String>)>> = LazyLock::new(|| {
    all()
        .into_iter()
        .map(|case| {
            let found = refusals(&case);
            (case, found)
        })
        .collect()
});

#[test]
fn each_case_is_refused_by_its_rule_alone_or_admitted() {
    for (case, found) in FOUND.iter() {
        match case.expected {
            Expected::Admitted => assert!(found.is_empty(), "{}: {found:?}", case.what),
            Expected::Rule(message) => {
                let own = found.iter().filter(|found| found.contains(message)).count();
                assert_eq!((own, found.len()), (1, 1), "{}: {found:?}", case.what);
            }
            // Forms are the server's to check, and the types' below.
            Expected::Form(_) => {}
        }
    }
}

#[test]
fn no_rule_is_idle() {
    fn messages(schema: &Value, into: &mut BTreeSet<String>) {
        match schema {
            Value::Object(fields) => {
                for rule in fields
                    .get("x-kubernetes-validations")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                {
                    into.insert(
                        rule["message"].as_str().expect("each rule says what to do").to_owned(),
                    );
                }
                fields.values().for_each(|field| messages(field, into));
            }
            Value::Array(items) => items.iter().for_each(|item| messages(item, into)),
            _ => {}
        }
    }
    let mut rules = BTreeSet::new();
    messages(&schema("WorkerProfile"), &mut rules);
    messages(&schema("WorkerSession"), &mut rules);
    let seen: BTreeSet<String> = FOUND.iter().flat_map(|(_, found)| found.clone()).collect();
    let idle: Vec<_> = rules.difference(&seen).collect();
    assert!(idle.is_empty(), "rules that no case is refused by: {idle:#?}");
    assert!(rules.len() > 30, "{}", rules.len());
}

#[test]
fn what_is_admitted_is_read_and_what_has_a_wrong_form_is_not() {
    for case in all() {
        let read = match case.kind() {
            "WorkerProfile" => {
                serde_json::from_value::<WorkerProfile>(case.new.clone()).map(|_| ())
            }
            _ => serde_json::from_value::<WorkerSession>(case.new.clone()).map(|_| ()),
        };
        match case.expected {
            Expected::Rule(_) => {}
            Expected::Admitted => read.unwrap_or_else(|error| panic!("{}: {error}", case.what)),
            Expected::Form(read_too) => assert_eq!(read.is_ok(), !read_too, "{}", case.what),
        }
    }
}
