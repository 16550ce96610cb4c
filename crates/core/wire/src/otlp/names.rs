//! Translates OpenTelemetry's metric names and units to those of Prometheus.
//!
//! ```text
//! http.server.duration, s, histogram --> http_server_duration_seconds
//! hits, By/s, monotonic sum          --> hits_bytes_per_second_total
//! ```
//!
//! The translation strategy decides about escaping and suffixes, as in upstream
//! (`prometheus/otlptranslator`, and OpenTelemetry's compatibility specification).

use super::translation::OtlpTranslation;

/// The kind of a metric, as far as it affects the suffix of the translated name. Derived from the
/// data field and its properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum MetricSuffixKind {
    /// A monotonic sum: the suffix is `_total`.
    Counter,
    /// A gauge: suffix `_ratio` if the unit is `1`.
    Gauge,
    /// Any other metric: no suffix for the kind.
    Other,
}

/// UCUM units and the words that replace them in names.
const UNITS: [(&str, &str); 27] = [
    ("d", "days"),
    ("h", "hours"),
    ("min", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
    ("By", "bytes"),
    ("KiBy", "kibibytes"),
    ("MiBy", "mebibytes"),
    ("GiBy", "gibibytes"),
    ("TiBy", "tibibytes"),
    ("KBy", "kilobytes"),
    ("MBy", "megabytes"),
    ("GBy", "gigabytes"),
    ("TBy", "terabytes"),
    ("m", "meters"),
    ("V", "volts"),
    ("A", "amperes"),
    ("J", "joules"),
    ("W", "watts"),
    ("g", "grams"),
    ("Cel", "celsius"),
    ("Hz", "hertz"),
    ("1", ""),
    ("%", "percent"),
    ("", ""),
];

/// Units after a slash and the words that replace them.
const PER_UNITS: [(&str, &str); 7] = [
    ("s", "second"),
    ("m", "minute"),
    ("h", "hour"),
    ("d", "day"),
    ("w", "week"),
    ("mo", "month"),
    ("y", "year"),
];

/// Translates the name of a metric, or returns upstream's error text if that is impossible.
pub(super) fn translate_metric_name(
    name: &str,
    unit: &str,
    kind: MetricSuffixKind,
    translation: &OtlpTranslation,
) -> Result<String, String> {
    let strategy = translation.strategy;
    let named = match (strategy.is_escaping(), strategy.has_suffixes()) {
        (true, true) => escape_name_with_suffixes(name, unit, kind),
        (true, false) => escape_name(name),
        (false, true) => return append_suffixes(name, unit, kind),
        (false, false) => return Ok(name.to_owned()),
    };
    if named.is_empty() {
        return Err(format!(
            "normalization for metric {name:?} resulted in empty name"
        ));
    }
    if named != name && named.bytes().all(|byte| byte == b'_') {
        return Err(format!(
            "normalization for metric {name:?} resulted in invalid name {named:?}"
        ));
    }
    Ok(named)
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == ':'
}

/// Adds an underscore before a leading digit. Metric names must not begin with a digit.
fn prefix_leading_digit(name: String) -> String {
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        format!("_{name}")
    } else {
        name
    }
}

fn escape_name(name: &str) -> String {
    let parts = name.split(|c| !is_name_char(c) && c != '_');
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    prefix_leading_digit(parts.join("_"))
}

fn escape_name_with_suffixes(name: &str, unit: &str, kind: MetricSuffixKind) -> String {
    let parts = name.split(|c| !is_name_char(c));
    let mut parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    let (main, per) = split_unit(unit);
    let (main, per) = (clean_name(&main), clean_name(&per));
    let per = match per.as_str() {
        "per_" => "",
        per => per.strip_suffix('_').unwrap_or(per),
    };
    let (has_main, has_per) = (parts.contains(&&*main), parts.contains(&per));
    let per = if has_per { "" } else { per };
    let mut main = if has_main { "" } else { &*main };
    if !per.is_empty() {
        main = main.strip_suffix('_').unwrap_or(main);
    }
    parts.extend([main, per].iter().filter(|part| !part.is_empty()));
    let last = match kind {
        MetricSuffixKind::Counter => "total",
        MetricSuffixKind::Gauge if unit == "1" => "ratio",
        _ => "",
    };
    if !last.is_empty() {
        parts.retain(|part| *part != last);
        parts.push(last);
    }
    prefix_leading_digit(parts.join("_"))
}

/// Appends the suffixes for unit and kind to the name without escaping it. Fails like upstream if
/// cutting a suffix splits a character.
fn append_suffixes(name: &str, unit: &str, kind: MetricSuffixKind) -> Result<String, String> {
    let (main, per) = split_unit(unit);
    let mut behind: Vec<&str> = Vec::new();
    if kind == MetricSuffixKind::Gauge && unit == "1" {
        behind.push("ratio");
    }
    if kind == MetricSuffixKind::Counter {
        behind.push("total");
    }
    if !per.is_empty() {
        behind.push(&per);
    }
    let mut stem = name;
    for suffix in &behind {
        // Remove an existing suffix and its separator, unless nothing would remain.
        if stem.ends_with(suffix) && stem.len() > suffix.len() + 1 {
            let cut = stem.get(..stem.len() - suffix.len() - 1);
            stem = cut.ok_or_else(|| {
                format!("normalization for metric {name:?} resulted in invalid UTF-8")
            })?;
        }
    }
    let mut named = stem.to_owned();
    if !main.is_empty() && !named.ends_with(&main) {
        named.push('_');
        named.push_str(&main);
    }
    for suffix in behind.iter().rev() {
        named.push('_');
        named.push_str(suffix);
    }
    Ok(named)
}

/// Returns the word for a unit, restricted to the characters of legacy names if `is_escaped` is
/// true.
pub(super) fn translate_unit(unit: &str, is_escaped: bool) -> String {
    let (main, per) = split_unit(unit);
    let (main, per) = if is_escaped {
        (clean_name(&main), clean_name(&per))
    } else {
        (main, per)
    };
    let name = match (main.is_empty(), per.is_empty()) {
        (false, false) => format!("{main}_{per}"),
        (false, true) => main,
        (true, _) => per,
    };
    let name = name.strip_prefix('_').unwrap_or(&name);
    name.strip_suffix('_').unwrap_or(name).to_owned()
}

/// Returns the words for the unit before a slash and, with the prefix `per_`, for the one after it.
/// Annotations in braces are dropped.
fn split_unit(unit: &str) -> (String, String) {
    let (main, per) = unit.split_once('/').unwrap_or((unit, ""));
    let word = |unit: &str, words: &[(&str, &str)]| {
        let unit = unit.trim();
        if unit.contains(['{', '}']) {
            return String::new();
        }
        let known = words.iter().find(|(short, _)| *short == unit);
        known.map_or(unit, |(_, long)| *long).to_owned()
    };
    let (main, per) = (word(main, &UNITS), word(per, &PER_UNITS));
    if per.is_empty() {
        (main, per)
    } else {
        (main, format!("per_{per}"))
    }
}

/// Replaces other characters than those of a name by single underscores, with none at the start.
fn clean_name(unit: &str) -> String {
    let mut cleaned = String::with_capacity(unit.len());
    for c in unit.chars() {
        if is_name_char(c) {
            cleaned.push(c)
        } else if !cleaned.ends_with('_') {
            cleaned.push('_')
        }
    }
    match cleaned.strip_prefix('_') {
        Some(rest) => rest.to_owned(),
        None => cleaned,
    }
}

#[cfg(test)]
mod tests {
    use super::super::translation::TranslationStrategy;
    use super::*;

    fn check(name: &str, unit: &str, kind: MetricSuffixKind, want: [&str; 4]) {
        for (strategy, want) in TranslationStrategy::ALL.into_iter().zip(want) {
            let translation = OtlpTranslation {
                strategy,
                ..OtlpTranslation::default()
            };
            let got = translate_metric_name(name, unit, kind, &translation);
            let got = got.unwrap_or_else(|why| why);
            assert_eq!(got, want, "{name} {unit} by {}", strategy.name());
        }
    }

    #[test]
    fn metric_name_by_each_strategy_is_as_upstream_makes_it() {
        use MetricSuffixKind::{Counter, Gauge, Other};
        // Escaped with and without suffixes, then unescaped with and without suffixes.
        for (name, unit, kind, want) in [
            (
                "http.server.duration",
                "s",
                Other,
                [
                    "http_server_duration_seconds",
                    "http_server_duration",
                    "http.server.duration_seconds",
                    "http.server.duration",
                ],
            ),
            (
                "hits",
                "{hit}",
                Counter,
                ["hits_total", "hits", "hits_total", "hits"],
            ),
            (
                "total.a_total",
                "By/s",
                Counter,
                [
                    "a_bytes_per_second_total",
                    "total_a_total",
                    "total.a_bytes_per_second_total",
                    "total.a_total",
                ],
            ),
            (
                "used",
                "1",
                Gauge,
                ["used_ratio", "used", "used_ratio", "used"],
            ),
            (
                "used_ratio",
                "1",
                Gauge,
                ["used_ratio", "used_ratio", "used_ratio", "used_ratio"],
            ),
            (
                "used",
                "1",
                Counter,
                ["used_total", "used", "used_total", "used"],
            ),
            (
                "9__lives.seconds",
                "s",
                Other,
                [
                    "_9_lives_seconds",
                    "_9__lives_seconds",
                    "9__lives.seconds",
                    "9__lives.seconds",
                ],
            ),
            (
                "µ:x",
                "°F/fort night",
                Other,
                [":x_F_per_fort_night", ":x", "µ:x_°F_per_fort night", "µ:x"],
            ),
        ] {
            check(name, unit, kind, want);
        }
    }

    #[test]
    fn metric_name_that_comes_to_nothing_is_refused_where_it_is_escaped() {
        let empty = "normalization for metric \"++\" resulted in empty name";
        check(
            "++",
            "",
            MetricSuffixKind::Other,
            [empty, empty, "++", "++"],
        );
        let empty = "normalization for metric \"_.\" resulted in empty name";
        let invalid = "normalization for metric \"_.\" resulted in invalid name \"_\"";
        check(
            "_.",
            "",
            MetricSuffixKind::Other,
            [empty, invalid, "_.", "_."],
        );
    }

    #[test]
    fn unit_name_is_written_out_and_escaped() {
        for (unit, want) in [
            ("s", "seconds"),
            ("By/s", "bytes_per_second"),
            ("{request}/min", "per_min"),
            ("1", ""),
            ("{x}", ""),
            (" m ", "meters"),
            ("/mo", "per_month"),
            ("a b__c", "a_b_c"),
            ("%", "percent"),
        ] {
            assert_eq!(translate_unit(unit, true), want, "{unit}");
        }
    }
}
