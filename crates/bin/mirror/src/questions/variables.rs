//! Replaces the variables of a dashboard in expressions by values from a system.
//!
//! A variable is resolved when an expression first uses it, after the variables that its query
//! contains. A selection in the file is kept if the system has these values. Otherwise all values
//! are selected if the variable permits that, or else the first one.

use super::dashboard::{ALL, Dashboard, DashboardVariable, VariableKind};
use firn_model::units::{format_duration, parse_duration};
use firn_promql::parser::parse_selector;
use regex::Regex;
use std::collections::HashMap;
use std::time::Duration;

/// Maximum depth of variables that refer to each other; a longer chain is a cycle.
const DEPTH_MAX: usize = 20;

/// Maximum number of values of a variable in an expression; real panels are not drawn for more.
const VALUES_MAX: usize = 2_000;

/// Assumed scrape interval in milliseconds, Grafana's default. `$__rate_interval` is at least four
/// of them.
const SCRAPE_INTERVAL_MS: i64 = 15_000;

/// Lookups in a system for the values of variables and for generated queries. Errors are texts for
/// reports.
pub trait VariableLookup {
    /// Returns label names, limited to the series of `selector` if there is one. Fails with the
    /// system's error.
    fn label_names(&self, selector: Option<&str>) -> Result<Vec<String>, String>;

    /// Returns the values of `label`, limited to the series of `selector` if there is one.
    fn label_values(&self, label: &str, selector: Option<&str>) -> Result<Vec<String>, String>;

    /// Returns the elements of the vector that an expression returns, formatted as `{a="b"} value
    /// time`.
    fn query_result(&self, expression: &str) -> Result<Vec<String>, String>;
}

/// The times for built-in variables such as `$__range` and `$__interval`, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariableTimes {
    /// Start of the dashboard's time range, in milliseconds since the epoch.
    pub start_ms: i64,
    /// End of the dashboard's time range, in milliseconds since the epoch.
    pub end_ms: i64,
    /// Time between two points of a panel in milliseconds.
    pub step_ms: i64,
}

/// The selected values of a variable, and how they are inserted into an expression.
#[derive(Clone, Debug, PartialEq)]
struct VariableSelection {
    values: Vec<String>,
    /// Whether the values are alternatives of a regular expression.
    is_multi: bool,
    /// Whether the value is inserted without escaping, as a configured value for all.
    is_raw: bool,
}

/// The variables of a dashboard and the values that have been resolved so far, so that each is
/// looked up only once.
pub struct DashboardVariables<'a> {
    dashboard: &'a Dashboard,
    lookup: &'a dyn VariableLookup,
    times: &'a VariableTimes,
    known: HashMap<String, Result<VariableSelection, String>>,
}

impl<'a> DashboardVariables<'a> {
    /// Creates the variables of `dashboard`, none of which is resolved yet.
    pub fn new(
        dashboard: &'a Dashboard,
        lookup: &'a dyn VariableLookup,
        times: &'a VariableTimes,
    ) -> Self {
        Self {
            dashboard,
            lookup,
            times,
            known: HashMap::new(),
        }
    }

    /// Replaces the variables in `text` by values. Fails with the first variable that has none.
    pub fn replace_in(&mut self, text: &str) -> Result<String, String> {
        self.replace(text, 0)
    }

    fn replace(&mut self, text: &str, depth: usize) -> Result<String, String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(['$', '[']) {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            match VariableReference::at_start_of(rest) {
                Some(reference) => {
                    out.push_str(&self.value(&reference, depth)?);
                    rest = &rest[reference.bytes..];
                }
                None => {
                    out.push_str(&rest[..1]);
                    rest = &rest[1..];
                }
            }
        }
        out.push_str(rest);
        Ok(out)
    }

    fn value(&mut self, reference: &VariableReference<'_>, depth: usize) -> Result<String, String> {
        let name = reference.name;
        if let Some(text) = self.built_in(name) {
            return Ok(text);
        }
        if depth > DEPTH_MAX {
            return Err(format!("variable ${name} refers to itself"));
        }
        if !self.known.contains_key(name) {
            let chosen = self.choose(name, depth);
            self.known.insert(name.to_owned(), chosen);
        }
        self.known[name]
            .clone()
            .map(|chosen| chosen.format(reference.format))
    }

    fn built_in(&self, name: &str) -> Option<String> {
        let VariableTimes {
            start_ms,
            end_ms,
            step_ms,
        } = *self.times;
        let rate_ms = (step_ms + SCRAPE_INTERVAL_MS).max(4 * SCRAPE_INTERVAL_MS);
        let range_ms = end_ms - start_ms;
        Some(match name {
            "__interval" => duration(step_ms),
            "__interval_ms" => step_ms.to_string(),
            "__rate_interval" => duration(rate_ms),
            "__rate_interval_ms" => rate_ms.to_string(),
            "__range" => format!("{}s", (range_ms / 1000).max(1)),
            "__range_s" => (range_ms / 1000).max(1).to_string(),
            "__range_ms" => range_ms.to_string(),
            "__from" => start_ms.to_string(),
            "__to" => end_ms.to_string(),
            _ => return None,
        })
    }

    fn choose(&mut self, name: &str, depth: usize) -> Result<VariableSelection, String> {
        let named = self.dashboard.variables.iter().find(|v| v.name == name);
        let variable = named.ok_or_else(|| format!("variable ${name} is not defined"))?;
        let found = match &variable.kind {
            VariableKind::Query(query) => {
                let query = self.replace(query, depth + 1)?;
                let found = query_values(&query, self.lookup);
                apply_regex(
                    found.map_err(|e| format!("variable ${name}: {e}"))?,
                    variable,
                )?
            }
            VariableKind::Custom(values) => custom_values(values),
            VariableKind::Interval(values) => {
                let step = duration(self.times.step_ms);
                let auto = |value: String| match parse_duration(&value) {
                    Ok(_) => value,
                    Err(_) => step.clone(),
                };
                custom_values(values).into_iter().map(auto).collect()
            }
            VariableKind::Constant(value) => vec![self.replace(value, depth + 1)?],
            VariableKind::Other(kind) => {
                return Err(format!(
                    "variable ${name} is of type {kind:?}, which has no values"
                ));
            }
        };
        choose_among(found, variable)
    }
}

fn duration(ms: i64) -> String {
    format_duration(Duration::from_millis(ms.unsigned_abs()))
}

fn choose_among(
    found: Vec<String>,
    variable: &DashboardVariable,
) -> Result<VariableSelection, String> {
    let chosen: Vec<String> = variable.current.clone();
    let has_all_chosen = !chosen.is_empty() && chosen.iter().all(|value| found.contains(value));
    let wants_all = chosen.iter().any(|value| value == ALL);
    if let Some(all) = variable.all_value.as_ref().filter(|_| wants_all) {
        return Ok(VariableSelection {
            values: vec![all.clone()],
            is_multi: false,
            is_raw: true,
        });
    }
    if found.is_empty() {
        return Err(format!(
            "variable ${} has no values in the baseline",
            variable.name
        ));
    }
    let several = variable.is_multi || variable.includes_all;
    let values = if has_all_chosen {
        chosen
    } else if several {
        found
    } else {
        found.into_iter().take(1).collect()
    };
    Ok(VariableSelection {
        values: values.into_iter().take(VALUES_MAX).collect(),
        is_multi: several,
        is_raw: false,
    })
}

/// Splits comma-separated values; a backslash escapes a comma. Of an item `name : value`, only the
/// value is used.
fn custom_values(text: &str) -> Vec<String> {
    let split = Regex::new(r"(?:\\,|[^,])+").expect("a pattern that is written here");
    let value = |item: &str| {
        let item = item.trim();
        let value = item
            .split_once(" : ")
            .map_or(item, |(_, value)| value.trim());
        value.replace("\\,", ",")
    };
    let items = split.find_iter(text).map(|item| value(item.as_str()));
    items.filter(|value| !value.is_empty()).collect()
}

/// Returns the values that the query of a variable finds, in any of Grafana's functions. Fails with
/// the reason if there are none.
fn query_values(query: &str, lookup: &dyn VariableLookup) -> Result<Vec<String>, String> {
    let query = query.trim();
    let inside = |function: &str| {
        let rest = query.strip_prefix(function)?.trim_start();
        Some(rest.strip_prefix('(')?.strip_suffix(')')?.trim())
    };
    let matching = |pattern: &str, values: Vec<String>| {
        let regex = Regex::new(pattern).map_err(|e| format!("pattern {pattern:?}: {e}"))?;
        Ok(values
            .into_iter()
            .filter(|value| regex.is_match(value))
            .collect())
    };
    if let Some(arguments) = inside("label_values") {
        return match arguments.rsplit_once(',') {
            Some((selector, label)) if parse_selector(selector.trim()).is_ok() => {
                lookup.label_values(label.trim(), Some(selector.trim()))
            }
            Some((selector, _)) => Err(format!("not a selector: {selector:?}")),
            None => lookup.label_values(arguments, None),
        };
    }
    if let Some(pattern) = inside("label_names") {
        return matching(pattern, lookup.label_names(None)?);
    }
    if let Some(pattern) = inside("metrics") {
        let names = lookup.label_values(firn_model::labels::METRIC_NAME, None)?;
        return matching(pattern, names);
    }
    let expression = inside("query_result").unwrap_or(query);
    match expression {
        "" => Err("its query is empty".to_owned()),
        _ => lookup.query_result(expression),
    }
}

/// Applies the regular expression of a variable to each value, removes duplicates and sorts the
/// result as the variable specifies.
fn apply_regex(found: Vec<String>, variable: &DashboardVariable) -> Result<Vec<String>, String> {
    let mut kept = match variable.regex.as_str() {
        "" => found,
        pattern => {
            let inner = pattern.strip_prefix('/').and_then(|p| p.rsplit_once('/'));
            let (pattern, flags) = inner.unwrap_or((pattern, ""));
            let flags = if flags.contains('i') { "(?i)" } else { "" };
            let regex = Regex::new(&format!("{flags}{pattern}"))
                .map_err(|e| format!("variable ${}: pattern {pattern:?}: {e}", variable.name))?;
            let cut = |value: &String| {
                let groups = regex.captures(value)?;
                let group = groups.name("value").or(groups.get(1)).or(groups.get(0))?;
                Some(group.as_str().to_owned())
            };
            found.iter().filter_map(cut).collect()
        }
    };
    let mut seen = std::collections::HashSet::new();
    kept.retain(|value| !value.is_empty() && seen.insert(value.clone()));
    let number = |value: &String| {
        let digits = value.trim_start_matches(|c: char| !c.is_ascii_digit());
        let end = digits
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(digits.len());
        digits[..end].parse::<u64>().unwrap_or(u64::MAX)
    };
    match variable.sort {
        0 => {}
        3 | 4 => kept.sort_by_key(number),
        5 | 6 => kept.sort_by_key(|value| value.to_lowercase()),
        _ => kept.sort(),
    }
    if matches!(variable.sort, 2 | 4 | 6) {
        kept.reverse();
    }
    Ok(kept)
}

/// A reference to a variable at the start of a text, in any of Grafana's notations.
#[derive(Debug, PartialEq, Eq)]
struct VariableReference<'t> {
    name: &'t str,
    format: &'t str,
    /// Length of the whole reference in bytes, including its brackets.
    bytes: usize,
}

impl<'t> VariableReference<'t> {
    /// Parses a reference at the start of `text`: `$name`, `${name}`, `${name:format}` or
    /// `[[name]]`. Returns `None` for anything else, such as `$1` or a `[[` of the expression.
    fn at_start_of(text: &'t str) -> Option<Self> {
        let (inside, around) = match text.strip_prefix("${") {
            Some(rest) => (rest.split_once('}')?.0, 3),
            None => match text.strip_prefix("[[") {
                Some(rest) => (rest.split_once("]]")?.0, 4),
                None => {
                    let rest = text.strip_prefix('$')?;
                    let is_part = |c: char| c == '_' || c.is_ascii_alphanumeric();
                    let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
                    (&rest[..end], 1)
                }
            },
        };
        let (name, format) = inside.split_once(':').unwrap_or((inside, ""));
        let name = name.split_once('.').map_or(name, |(name, _)| name);
        let is_name = name.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
            && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric());
        is_name.then_some(Self {
            name,
            format,
            bytes: inside.len() + around,
        })
    }
}

impl VariableSelection {
    fn format(&self, format: &str) -> String {
        if self.is_raw && format.is_empty() {
            return self.values.concat();
        }
        let joined = |separator: &str| self.values.join(separator);
        let quoted = |quote: char| {
            let quoted = self
                .values
                .iter()
                .map(|value| format!("{quote}{value}{quote}"));
            quoted.collect::<Vec<_>>().join(",")
        };
        match format {
            "raw" | "csv" | "text" | "queryparam" => joined(","),
            "pipe" => joined("|"),
            "glob" if self.values.len() > 1 => format!("{{{}}}", joined(",")),
            "glob" => joined(","),
            "doublequote" => quoted('"'),
            "singlequote" => quoted('\''),
            "regex" => self.pattern(regex::escape),
            _ if self.is_multi => self.pattern(|value| {
                // The pattern is inserted into a quoted string, so that it is escaped twice.
                regex::escape(value)
                    .replace('\\', "\\\\")
                    .replace('"', "\\\"")
            }),
            _ => joined(",").replace('\\', "\\\\").replace('"', "\\\""),
        }
    }

    fn pattern(&self, escape: impl Fn(&str) -> String) -> String {
        let escaped: Vec<String> = self.values.iter().map(|value| escape(value)).collect();
        match escaped.as_slice() {
            [one] => one.clone(),
            several => format!("({})", several.join("|")),
        }
    }
}
