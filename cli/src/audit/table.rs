//! One event in one line for people.

use std::fmt;

use serde_json::Value;

use crate::printable;

/// What is shown of an event. A line that is no event is shown as such.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Milliseconds since the Unix epoch; 0 where the line does not tell.
    pub(super) time: u64,
    severity: String,
    code: String,
    message: String,
}

// === impl Row ===

impl Row {
    pub(super) fn of(line: &[u8]) -> Self {
        let Ok(event) = serde_json::from_slice::<Value>(line) else {
            let message = "(a line that is no event: see `casemate audit verify`)".to_owned();
            return Self { time: 0, severity: "?".into(), code: "?".into(), message };
        };
        let text = |value: &Value| printable::line(value.as_str().unwrap_or("?"));
        let mut message = text(&event["message"]);
        if let Some(detail) = event["status_detail"].as_str() {
            message += &format!(": {}", printable::line(detail));
        }
        match event["count"].as_u64() {
            Some(count) if count > 1 => message += &format!(" ({count} times)"),
            _ => {}
        }
        if let Some(lost) = event["unmapped"]["lost_before"].as_u64() {
            message += &format!(" [{lost} events before it were lost: no room]");
        }
        Self {
            time: event["time"].as_u64().unwrap_or(0),
            severity: text(&event["severity"]),
            code: text(&event["metadata"]["event_code"]),
            message,
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (day, time) = (self.time / 86_400_000, self.time % 86_400_000 / 1000);
        let (year, month, day) = civil(day);
        let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
        let level = match self.severity.as_str() {
            "Informational" => "-",
            other => other,
        };
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z  {level:<6}  {:<20}  {}",
            self.code, self.message
        )
    }
}

/// Day since 1970-01-01 to year, month, day (proleptic Gregorian calendar; years of 400 begin in March).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(19_723), (2024, 1, 1));
        assert_eq!(civil(20_786), (2026, 11, 29));
    }

    #[test]
    fn nothing_that_a_terminal_obeys_is_printed() {
        let line = br#"{"time":1000,"severity":"Low","message":"\u001b[2Jx\n","count":3}"#;
        let row = Row::of(line).to_string();
        assert_eq!(
            row,
            "1970-01-01T00:00:01Z  Low     ?                     \\u{1b}[2Jx  (3 times)"
        );
    }
}
