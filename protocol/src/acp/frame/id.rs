//! When two raw JSON-RPC ids are the same: a peer may write the id that it was given in another spelling.

use super::string;

/// One spelling for all of an id's, raw JSON. Strings and numbers never meet.
#[must_use]
pub fn canonical(raw: &str) -> String {
    if let Some(text) = string(raw) {
        return format!("\"{text}");
    }
    if raw.parse::<i128>().is_ok_and(|number| number.to_string() == raw) {
        return raw.to_owned();
    }
    match raw.parse::<f64>() {
        // Integers that a double holds exactly; beyond, two different ids could become one.
        Ok(number) if number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0 => {
            format!("{:.0}", number + 0.0)
        }
        _ => raw.to_owned(),
    }
}

/// Whether both, raw JSON, name one request.
#[must_use]
pub fn same_id(a: &str, b: &str) -> bool {
    a == b || canonical(a) == canonical(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_id_are_equal() {
        for (a, b) in [
            ("7", "7.0"),
            ("7", "70e-1"),
            ("0", "-0"),
            (r#""ab""#, r#""\u0061b""#),
            ("null", "null"),
        ] {
            assert!(same_id(a, b), "{a} {b}");
        }
    }

    #[test]
    fn different_ids_stay_different() {
        for (a, b) in [
            ("7", r#""7""#),
            ("7", "8"),
            ("9007199254740993", "9007199254740992"),
            ("9007199254740993.0", "9007199254740992.0"),
            ("1.5", "1"),
        ] {
            assert!(!same_id(a, b), "{a} {b}");
        }
    }
}
