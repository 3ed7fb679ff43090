//! A long time as people write it. Pure.

use std::time::Duration;

/// `90s`, `30m`, `2h`, `7d`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || "write a number and s, m, h or d, as in 30m".to_owned();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let each = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    number.checked_mul(each).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_numbers_with_a_unit() {
        assert_eq!(parse("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("2h"), Ok(Duration::from_secs(7200)));
        assert_eq!(parse("7d"), Ok(Duration::from_secs(604_800)));
        for wrong in ["", "h", "2", "2w", "-1h", "2é", "99999999999999999999d", "213503982334602d"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
