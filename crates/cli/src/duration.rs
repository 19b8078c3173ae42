//! Parses durations from the command line and formats ages for people.

use std::time::Duration;

use gpuaas_server::KeepFor;
use jiff::{SignedDuration, Timestamp};

/// Parses a duration such as `90s`, `10m` or `1h30m`. Refuses negative ones.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let signed: SignedDuration = text.parse().map_err(|_| format!("{text:?} is no duration such as 90s or 10m"))?;
    Duration::try_from(signed).map_err(|_| format!("{text:?} lies in the past"))
}

/// Parses a retention period: `90d`, `36h` or `forever`. Refuses periods shorter than [`KeepFor::LEAST`].
pub(crate) fn keep(text: &str) -> Result<KeepFor, String> {
    if text == "forever" {
        return Ok(KeepFor::Forever);
    }
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    let age = match days {
        Some(days) => Duration::from_secs(u64::from(days) * 86_400),
        None => parse(text).map_err(|_| format!("{text:?} is not a duration such as 90d or 36h, nor forever"))?,
    };
    if age < KeepFor::LEAST {
        return Err(format!("{text} is too short: at least {} s", KeepFor::LEAST.as_secs()));
    }
    Ok(KeepFor::Duration(age))
}

/// Formats the age of a control plane timestamp by this machine's clock: `12 s`, `3 min`. Returns text that is no timestamp unchanged.
pub(crate) fn ago(moment: &str) -> String {
    moment.parse().map_or_else(|_| moment.to_owned(), |moment: Timestamp| since(moment, Timestamp::now()))
}

fn since(moment: Timestamp, now: Timestamp) -> String {
    match now.duration_since(moment).as_secs().max(0) {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7_200 => format!("{} min", seconds / 60),
        seconds @ ..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(parse("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5_400)));
        assert!(parse("soon").is_err() && parse("-5m").is_err());
    }

    #[test]
    fn time_to_keep_is_days_hours_or_forever_and_not_too_short() {
        let hours = |hours: u64| Ok(KeepFor::Duration(Duration::from_secs(hours * 3_600)));
        assert_eq!((keep("90d"), keep("36h"), keep("forever")), (hours(90 * 24), hours(36), Ok(KeepFor::Forever)));
        for (wrong, word) in [
            ("90", "forever"),
            ("9days!", "forever"),
            ("-1d", "forever"),
            ("ever", "ever"),
            ("9s", "10 s"),
            ("0d", "10 s"),
        ] {
            let refused = keep(wrong).expect_err(wrong);
            assert!(refused.contains(word), "{wrong}: {refused}");
        }
    }

    #[test]
    fn moments_are_told_in_the_unit_that_says_enough() {
        let at = |seconds| Timestamp::from_second(seconds).expect("a moment");
        let told: Vec<_> = [5, 119, 120, 7_200, 172_800].map(|age| since(at(0), at(age))).into();
        assert_eq!(told, ["5 s", "119 s", "2 min", "2 h", "2 days"]);
        assert_eq!(since(at(9), at(0)), "0 s");
    }
}
