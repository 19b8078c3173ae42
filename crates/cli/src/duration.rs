//! Parses durations from the command line and formats ages for people.

use std::time::Duration;

use gpuaas_server::KeepFor;
use jiff::{SignedDuration, Timestamp, civil::Date, tz::TimeZone};

/// Parses a duration such as `90s`, `10m`, `1h30m` or `30d`. Refuses negative ones.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    if let Some(days) = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok()) {
        return Ok(Duration::from_secs(u64::from(days) * 86_400));
    }
    let signed: SignedDuration = text.parse().map_err(|_| format!("{text:?} is not a duration such as 90s or 10m"))?;
    Duration::try_from(signed).map_err(|_| format!("{text:?} is negative; give a duration such as 10m"))
}

/// Parses a time limit. Refuses zero, which no work meets.
pub(crate) fn parse_timeout(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err(format!("{text} leaves no time: give a duration such as 10m")),
        limit => Ok(limit),
    }
}

/// Parses a time: RFC 3339, a date for the start of that day in UTC, or a duration before now by this machine's clock.
pub(crate) fn parse_time(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    if let Ok(date) = text.parse::<Date>() {
        return date.to_zoned(TimeZone::UTC).map(|begin| begin.timestamp()).map_err(|error| error.to_string());
    }
    let wrong =
        || format!("{text:?} is neither a duration such as 1h nor a time such as 2026-07-01T08:00:00Z or 2026-07-01");
    let age = SignedDuration::try_from(parse(text).map_err(|_| wrong())?).map_err(|_| wrong())?;
    Timestamp::now().checked_sub(age).map_err(|_| wrong())
}

/// Parses a retention period: `90d`, `36h` or `forever`. Refuses periods shorter than [`KeepFor::MIN`].
pub(crate) fn parse_retention(text: &str) -> Result<KeepFor, String> {
    if text == "forever" {
        return Ok(KeepFor::Forever);
    }
    let age = parse(text).map_err(|_| format!("{text:?} is neither a duration such as 90d or 36h nor forever"))?;
    if age < KeepFor::MIN {
        return Err(format!("{text} is too short: at least {} s", KeepFor::MIN.as_secs()));
    }
    Ok(KeepFor::Duration(age))
}

/// Formats the age of a control plane timestamp by this machine's clock: `12 s`, `3 min`. Returns text that is no timestamp unchanged.
pub(crate) fn format_age(moment: &str) -> String {
    moment.parse().map_or_else(|_| moment.to_owned(), |moment: Timestamp| format_duration(moment, Timestamp::now()))
}

/// Formats a length of time: milliseconds up to a second, then seconds.
pub(crate) fn format_millis(millis: i64) -> String {
    match millis {
        ..1_000 => format!("{millis} ms"),
        _ => format!("{:.1} s", millis as f64 / 1_000.0),
    }
}

/// Formats the distance of a time from now by this machine's clock: `3 min ago`, `in 30 days`. Returns `None` for a text that is no time.
pub(crate) fn format_distance(moment: &str) -> Option<String> {
    let (moment, now) = (moment.parse().ok()?, Timestamp::now());
    Some(if moment > now {
        format!("in {}", format_duration(now, moment))
    } else {
        format!("{} ago", format_duration(moment, now))
    })
}

/// Returns the milliseconds between two control plane timestamps; `None` for texts that are none.
pub(crate) fn millis_between(start: &str, end: &str) -> Option<i64> {
    let at = |moment: &str| moment.parse().map(Timestamp::as_millisecond).ok();
    Some(at(end)? - at(start)?)
}

/// Reports whether a control plane timestamp has passed, by this machine's clock.
pub(crate) fn is_past(moment: &str) -> bool {
    moment.parse::<Timestamp>().is_ok_and(|moment| moment <= Timestamp::now())
}

fn format_duration(moment: Timestamp, now: Timestamp) -> String {
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
    fn durations_with_units_are_parsed() {
        assert_eq!(parse("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(parse("30d"), Ok(Duration::from_secs(30 * 86_400)));
        assert!(parse("soon").is_err() && parse("-5m").is_err());
        assert!(parse_timeout("0s").is_err() && parse_timeout("1s") == Ok(Duration::from_secs(1)));
    }

    #[test]
    fn time_is_a_moment_or_a_duration_before_now() {
        assert_eq!(parse_time("2026-07-01T10:00:00+02:00"), "2026-07-01T08:00:00Z".parse().map_err(|_| String::new()));
        assert_eq!(parse_time("2026-07-01"), parse_time("2026-07-01T00:00:00Z"));
        let age = Timestamp::now().duration_since(parse_time("1h").expect("a duration"));
        assert!((3_590..3_660).contains(&age.as_secs()), "{age}");
        for wrong in ["yesterday", "-1h", "2026-07-32", "9999999d"] {
            assert!(parse_time(wrong).is_err_and(|refused| refused.contains("2026-07-01T08:00:00Z")), "{wrong}");
        }
    }

    #[test]
    fn retention_is_days_hours_or_forever_with_a_minimum() {
        let hours = |hours: u64| Ok(KeepFor::Duration(Duration::from_secs(hours * 3_600)));
        assert_eq!(
            (parse_retention("90d"), parse_retention("36h"), parse_retention("forever")),
            (hours(90 * 24), hours(36), Ok(KeepFor::Forever))
        );
        for (wrong, word) in [
            ("90", "forever"),
            ("9days!", "forever"),
            ("-1d", "forever"),
            ("ever", "ever"),
            ("9s", "10 s"),
            ("0d", "10 s"),
        ] {
            let refused = parse_retention(wrong).expect_err(wrong);
            assert!(refused.contains(word), "{wrong}: {refused}");
        }
    }

    #[test]
    fn ages_use_a_suitable_unit() {
        let at = |seconds| Timestamp::from_second(seconds).expect("a moment");
        let reported: Vec<_> = [5, 119, 120, 7_200, 172_800].map(|age| format_duration(at(0), at(age))).into();
        assert_eq!(reported, ["5 s", "119 s", "2 min", "2 h", "2 days"]);
        assert_eq!(format_duration(at(9), at(0)), "0 s");
    }
}
