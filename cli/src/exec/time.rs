//! A time as people write it. Pure.

use std::time::Duration;

/// `30s`, `500ms`, `5m`, `1h`; a number alone is seconds.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let milliseconds = match unit {
        "ms" => 1,
        "" | "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err("write it as 30s, 500ms, 5m or 1h".to_owned()),
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(milliseconds))
        .filter(|time| *time > 0)
        .map(Duration::from_millis)
        .ok_or_else(|| "write it as 30s, 500ms, 5m or 1h, and longer than nothing".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_nonsense_is_refused() {
        let pairs =
            [("30s", 30_000), ("2", 2000), ("500ms", 500), ("5m", 300_000), ("1h", 3_600_000)];
        for (text, milliseconds) in pairs {
            assert_eq!(parse(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for wrong in
            ["", "s", "0", "0s", "1d", "-1s", "1.5s", "99999999999999999999s", "5124095576030432h"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
