//! Formatting of figures.

use std::time::Duration;

use crate::demo::Store;

/// A measured quantity.
pub(super) struct Figure {
    what: String,
    unit: &'static str,
    value: f64,
}

impl Figure {
    pub(super) fn new(what: impl Into<String>, unit: &'static str, value: f64) -> Self {
        Self { what: what.into(), unit, value }
    }

    /// Prefixes the name with the whole that it is part of.
    pub(super) fn of(self, group: &str) -> Self {
        Self { what: format!("{group}: {}", self.what), ..self }
    }
}

/// Display name of a database.
pub(super) fn name(store: Store) -> &'static str {
    match store {
        Store::Sqlite => "SQLite",
        Store::Postgres => "PostgreSQL",
    }
}

/// Prints the figures of several databases in columns; all have the same names in the same order.
pub(super) fn side_by_side(title: &str, columns: &[(Store, Vec<Figure>)]) {
    let heads: String = columns.iter().map(|(store, _)| format!("{:>14}", name(*store))).collect();
    println!("{title:<60}{heads}");
    let Some((_, first)) = columns.first() else { return };
    for (at, figure) in first.iter().enumerate() {
        let values =
            columns.iter().map(|(_, figures)| figures.get(at).map_or(String::new(), |of| format_value(of.value)));
        let values: String = values.map(|value| format!("{value:>14}")).collect();
        println!("  {:<58}{values} {}", figure.what, figure.unit);
    }
}

/// Formats with at least three digits.
pub(super) fn format_value(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Returns the given percentile in milliseconds. Sorts `took`.
pub(super) fn percentile_ms(took: &mut [Duration], percent: usize) -> f64 {
    took.sort_unstable();
    let at = (took.len() * percent).div_ceil(100).saturating_sub(1);
    took.get(at).map_or(f64::NAN, |took| took.as_secs_f64() * 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_is_the_least_that_covers_its_share() {
        let mut took: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!((percentile_ms(&mut took, 50), percentile_ms(&mut took, 99)), (50.0, 99.0));
        assert!((percentile_ms(&mut [Duration::from_millis(7)], 99) - 7.0).abs() < 1e-9);
    }
}
