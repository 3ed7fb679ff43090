//! The definitions as an administrator installs them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use super::{WorkerProfile, WorkerSession};

/// The definitions of all custom resources.
///
/// # Panics
/// Never: what is changed in them is still a definition.
#[must_use]
pub fn definitions() -> [CustomResourceDefinition; 2] {
    [WorkerProfile::crd(), WorkerSession::crd()].map(|definition| {
        let mut value = serde_json::to_value(definition).expect("a definition is JSON");
        for version in value["spec"]["versions"].as_array_mut().into_iter().flatten() {
            tidy(&mut version["schema"]["openAPIV3Schema"]);
        }
        serde_json::from_value(value).expect("still a definition")
    })
}

/// Makes a schema say what the API server means by it.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            // `null` is the same as absent: the server drops it, and no rule that asks `has()` meets one.
            if fields.get("nullable") == Some(&Value::Bool(true)) {
                fields.remove("nullable");
            }
            // It knows no unsigned integers, and warns of them; each of ours has its range.
            if let Some(Value::String(format)) = fields.get_mut("format") {
                match format.as_str() {
                    "uint8" | "uint16" | "uint32" => "int32".clone_into(format),
                    "uint64" => "int64".clone_into(format),
                    _ => {}
                }
            }
            // Names in a map that have a form: it has no `patternProperties`, and a rule says the same.
            if let Some(Value::Object(named)) = fields.remove("patternProperties")
                && let Some((form, value)) = named.into_iter().next()
            {
                fields.insert("additionalProperties".to_owned(), value);
                let quoted = serde_json::to_string(&form).expect("text is JSON");
                let rule = json!({
                    "rule": format!("self.all(name, name.matches({quoted}))"),
                    "message": format!("a name in it does not match {form}"),
                });
                fields.insert("x-kubernetes-validations".to_owned(), json!([rule]));
            }
            fields.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}
