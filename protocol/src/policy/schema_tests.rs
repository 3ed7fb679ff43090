//! The JSON Schema says what the reader says: each table's fields and each field's words, taken from the reader's errors.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{SCHEMA, file};

/// The words in backquotes behind "expected".
fn expected(text: &str) -> BTreeSet<String> {
    let error = toml::from_str::<file::File>(text).err().expect("the reader takes no such word");
    let message = error.message().to_owned();
    assert!(message.contains("unknown"), "{text}: {message}");
    let (_, listed) = message.split_once("expected").expect("serde lists what it knows");
    listed.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn resolved<'a>(schema: &'a Value, part: &'a Value) -> &'a Value {
    match part["$ref"].as_str() {
        Some(named) => &schema["$defs"][named.rsplit('/').next().unwrap_or_default()],
        None => part,
    }
}

/// The words of an enumeration, or of a list's.
fn words<'a>(schema: &'a Value, field: &'a Value) -> Option<(BTreeSet<String>, bool)> {
    let field = resolved(schema, field);
    let is_list = field["type"] == "array";
    let one = if is_list { resolved(schema, &field["items"]) } else { field };
    let words: Option<BTreeSet<String>> =
        one["enum"].as_array()?.iter().map(|word| word.as_str().map(str::to_owned)).collect();
    words.map(|words| (words, is_list))
}

#[test]
fn the_schema_has_the_readers_fields_and_words() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let names = |object: &Value| -> BTreeSet<String> {
        object["properties"].as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(names(&schema), expected("zzz = 1"));
    let mut tried = 0;
    let tables = schema["properties"].as_object().unwrap();
    let tables = tables.iter().map(|(name, table)| match table["type"].as_str() {
        Some("array") => (format!("[[{name}]]"), &table["items"]),
        _ => (format!("[{name}]"), table),
    });
    let tables = tables.filter(|(_, table)| table["properties"].is_object());
    let test = ("[[syscall]]\n[[syscall.when]]".to_owned(), &schema["$defs"]["test"]);
    for (head, table) in tables.chain([test]) {
        assert_eq!(names(table), expected(&format!("{head}\nzzz = 1")), "{head}");
        for (field, part) in table["properties"].as_object().unwrap() {
            let Some((words, is_list)) = words(&schema, part) else { continue };
            let value = if is_list { "[\"zzz\"]" } else { "\"zzz\"" };
            assert_eq!(words, expected(&format!("{head}\n{field} = {value}")), "{head} {field}");
            tried += 1;
        }
    }
    assert!(tried > 12, "{tried}");
}
