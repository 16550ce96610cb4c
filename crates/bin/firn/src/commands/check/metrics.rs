//! The command `firn check metrics`: reports unusual metrics in the text on standard input, and
//! their cardinality. Checks, texts and exit codes are those of promtool: 1 for a text that cannot
//! be parsed, 3 for problems.

use crate::commands::arguments::switch;
use crate::commands::families::{Families, TextFamily, read};
use crate::commands::rules::check::LINT_FAILED;
use crate::console;
use clap::{Arg, ArgMatches, Command};
use firn_model::metadata::MetricType;
use firn_model::names::NameScheme;
use std::io::Read;
use std::process::ExitCode;

/// Returns the command line of `firn check metrics`: its flags and help texts.
pub(super) fn command() -> Command {
    let lint = Arg::new("lint")
        .long("lint")
        .value_name("CHECKS")
        .default_value("all")
        .help("Checks of names, types and help texts: all or none");
    Command::new("metrics")
        .about("Check metrics read from standard input")
        .after_help(
            "Examples:\n  cat metrics.prom | firn check metrics\n  curl -s \
             http://localhost:9090/metrics | firn check metrics --extended",
        )
        .arg(switch(
            "extended",
            "Show the number of series of each metric and its share of the total",
        ))
        .arg(lint)
}

/// Runs `firn check metrics` on standard input and returns its exit code.
pub(super) fn run(matches: &ArgMatches) -> ExitCode {
    let is_extended = matches.get_flag("extended");
    let lints = matches
        .get_one::<String>("lint")
        .is_none_or(|lint| lint != "none");
    if !is_extended && !lints {
        console::err("error: at least one of --extended or linting must be enabled");
        console::err(
            "Use --extended for cardinality analysis, or remove --lint=none to enable linting",
        );
        return ExitCode::FAILURE;
    }
    let mut text = Vec::new();
    let text = match std::io::stdin().read_to_end(&mut text) {
        // Upstream's lint accepts only legacy names.
        Ok(_) if lints => read(&text, NameScheme::Legacy),
        Ok(_) => read(&text, NameScheme::Utf8),
        Err(e) => Err(e.to_string()),
    };
    let families = match text {
        Ok(families) => families,
        Err(e) if lints => {
            console::err(&format!("error while linting: {e}"));
            return ExitCode::FAILURE;
        }
        Err(e) => {
            console::err(&format!("error while parsing text to metric families: {e}"));
            return ExitCode::FAILURE;
        }
    };
    let problems = if lints {
        problems(&families)
    } else {
        Vec::new()
    };
    for (metric, problem) in &problems {
        console::err(&format!("{metric} {problem}"));
    }
    if is_extended {
        console::out(&table(&families));
    }
    if problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(LINT_FAILED)
    }
}

/// Returns a table of the metrics with their numbers of series, the largest first.
fn table(families: &Families) -> String {
    let count = |family: &TextFamily| -> usize {
        let first = family.metrics.first();
        let parts = first.map_or(0, |m| m.samples.iter().filter(|s| s.part.is_some()).count());
        match family.kind {
            MetricType::Histogram | MetricType::Summary => family.metrics.len() * (2 + parts),
            _ => family.metrics.len(),
        }
    };
    let mut counts: Vec<(&String, usize)> = families.iter().map(|(n, f)| (n, count(f))).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let total: usize = counts.iter().map(|(_, count)| count).sum();
    let mut rows = vec![[
        "Metric".to_owned(),
        "Cardinality".into(),
        "Percentage".into(),
    ]];
    for (name, count) in counts {
        let share = count as f64 / total as f64 * 100.0;
        rows.push([name.clone(), count.to_string(), format!("{share:.2}%")]);
    }
    rows.push(["Total".into(), total.to_string(), "100%".into()]);
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0) + 4
    };
    let widths = [width(0), width(1), width(2)];
    let mut out = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(widths) {
            out += &format!("{cell:width$}");
        }
        out.push('\n');
    }
    out
}

/// Returns the problems of all metrics, by metric and text.
fn problems(families: &Families) -> Vec<(&str, String)> {
    let mut problems = Vec::new();
    for (name, family) in families {
        let mut texts = Vec::new();
        check_help_and_units(name, family, &mut texts);
        check_counter(name, family, &mut texts);
        check_reserved(name, family, &mut texts);
        check_spelling(name, family, &mut texts);
        check_unique(family, &mut texts);
        problems.extend(texts.into_iter().map(|text| (name.as_str(), text)));
    }
    problems.sort();
    problems
}

fn check_help_and_units(name: &str, family: &TextFamily, texts: &mut Vec<String>) {
    if family.help.is_none() {
        texts.push("no help text".into());
    }
    if let Some((unit, base)) = find_unit(name).filter(|(unit, base)| unit != base) {
        texts.push(format!("use base unit {base:?} instead of {unit:?}"));
    }
}

fn check_counter(name: &str, family: &TextFamily, texts: &mut Vec<String>) {
    let is_total = name.ends_with("_total");
    match family.kind {
        MetricType::Counter if !is_total => {
            texts.push("counter metrics should have \"_total\" suffix".into());
        }
        MetricType::Counter | MetricType::Unknown => {}
        _ if is_total => {
            texts.push("non-counter metrics should not have \"_total\" suffix".into());
        }
        _ => {}
    }
}

/// Checks for names and labels that are reserved for histograms and summaries.
fn check_reserved(name: &str, family: &TextFamily, texts: &mut Vec<String>) {
    let is_histogram = family.kind == MetricType::Histogram;
    let is_summary = family.kind == MetricType::Summary;
    if family.kind == MetricType::Unknown {
        return;
    }
    if !is_histogram && name.ends_with("_bucket") {
        texts.push("non-histogram metrics should not have \"_bucket\" suffix".into());
    }
    for suffix in ["_count", "_sum"] {
        if !is_histogram && !is_summary && name.ends_with(suffix) {
            texts.push(format!(
                "non-histogram and non-summary metrics should not have \"{suffix}\" suffix"
            ));
        }
    }
    for metric in &family.metrics {
        if !is_histogram && metric.labels.contains_key("le") {
            texts.push("non-histogram metrics should not have \"le\" label".into());
        }
        if !is_summary && metric.labels.contains_key("quantile") {
            texts.push("non-summary metrics should not have \"quantile\" label".into());
        }
    }
}

fn check_spelling(name: &str, family: &TextFamily, texts: &mut Vec<String>) {
    let lower = name.to_lowercase();
    let has_word =
        |word: &str| lower.contains(&format!("_{word}_")) || lower.ends_with(&format!("_{word}"));
    let kind = family.kind.name();
    if family.kind != MetricType::Unknown && has_word(kind) {
        texts.push(format!("metric name should not include type '{kind}'"));
    }
    if name.contains(':') {
        texts.push("metric names should not contain ':'".into());
    }
    if is_camel_case(name) {
        texts.push("metric names should be written in 'snake_case' not 'camelCase'".into());
    }
    let names = family
        .metrics
        .iter()
        .flat_map(|metric| metric.labels.keys());
    for _ in names.filter(|name| is_camel_case(name)) {
        texts.push("label names should be written in 'snake_case' not 'camelCase'".into());
    }
    for _ in ABBREVIATIONS.iter().filter(|word| has_word(word)) {
        texts.push("metric names should not contain abbreviated units".into());
    }
}

fn check_unique(family: &TextFamily, texts: &mut Vec<String>) {
    for (i, metric) in family.metrics.iter().enumerate() {
        if family.metrics[i + 1..]
            .iter()
            .any(|other| other.labels == metric.labels)
        {
            texts.push("metric not unique".into());
        }
    }
}

fn is_camel_case(name: &str) -> bool {
    let bytes = name.as_bytes();
    let is_hump = |pair: &[u8]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
    bytes.windows(2).any(is_hump)
}

/// Units by name, with the base unit to use instead. Base units are mapped to themselves.
const UNITS: [(&str, &str); 24] = [
    ("amperes", "amperes"),
    ("bytes", "bytes"),
    ("celsius", "celsius"),
    ("grams", "grams"),
    ("joules", "joules"),
    ("kelvin", "kelvin"),
    ("meters", "meters"),
    ("metres", "metres"),
    ("seconds", "seconds"),
    ("volts", "volts"),
    ("minutes", "seconds"),
    ("hours", "seconds"),
    ("days", "seconds"),
    ("weeks", "seconds"),
    ("kelvins", "kelvin"),
    ("fahrenheit", "celsius"),
    ("rankine", "celsius"),
    ("inches", "meters"),
    ("yards", "meters"),
    ("miles", "meters"),
    ("bits", "bytes"),
    ("calories", "joules"),
    ("pounds", "grams"),
    ("ounces", "grams"),
];

const PREFIXES: [&str; 18] = [
    "pico", "nano", "micro", "milli", "centi", "deci", "deca", "hecto", "kilo", "kibi", "mega",
    "mibi", "giga", "gibi", "tera", "tebi", "peta", "pebi",
];

const ABBREVIATIONS: [&str; 14] = [
    "s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d",
];

/// Returns the first unit in a name, and the base unit to use instead.
fn find_unit(name: &str) -> Option<(&str, &'static str)> {
    let base_of = |word: &str| {
        let found = UNITS.iter().find(|(unit, _)| *unit == word);
        found.map(|(_, base)| *base)
    };
    for word in name.split('_') {
        if let Some(base) = base_of(word) {
            return Some((word, base));
        }
        let stems = PREFIXES
            .iter()
            .filter_map(|prefix| word.strip_prefix(prefix));
        for stem in stems {
            if let Some(base) = base_of(stem) {
                return Some((word, base));
            }
        }
    }
    None
}
