//! Reads files of queries. The type of a file is determined by its content, not by its name.
//!
//! | begins with | type |
//! |---|---|
//! | the magic of Firn's file of active queries | file of active queries |
//! | `[` | Prometheus's file of active queries, or a JSON list |
//! | `{`, and is one document with panels | Grafana dashboard |
//! | `{`, and each line is a document | query log |
//! | anything, with a key `groups` | rule file |
//! | anything else | list, see [`list`] |
//!
//! In a directory, all files with one of the usual extensions are read, including those in
//! subdirectories.

use super::dashboard::Dashboard;
use super::{QueryText, QueryWeightRange, active, dashboard, list, parse};
use crate::error::MirrorError;
use firn_yaml::YamlNode;
use serde_json::Value;
use std::path::{Path, PathBuf};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Maximum length of a file in bytes: enough for a query log with a million long queries.
const FILE_BYTES_MAX: u64 = 512 << 20;

/// Maximum depth of nested directories; deeper ones are most likely cycles of symbolic links.
const DEPTH_MAX: usize = 16;

/// Extensions of the files that are read from a directory.
const ENDINGS: [&str; 7] = ["json", "yml", "yaml", "rules", "txt", "promql", "log"];

/// The content of a file before variables are replaced and expressions are parsed.
#[derive(Clone, Debug, PartialEq)]
pub enum QueryFileContent {
    /// Complete expressions, from any type of file but dashboards.
    Texts(Vec<QueryText>),
    /// A dashboard, whose expressions may contain variables.
    Dashboard(Dashboard),
}

/// Reads files and directories. Fails with the name of a file that cannot be read or contains no
/// query.
pub fn read(paths: &[PathBuf]) -> Result<Vec<QueryFileContent>, MirrorError> {
    let mut sources = Vec::new();
    for path in paths {
        let mut files = Vec::new();
        if path.is_dir() {
            collect(path, 0, &mut files)?
        } else {
            files.push(path.clone())
        }
        if files.is_empty() {
            let endings = ENDINGS.join(", ");
            return refuse(
                path,
                format!("the folder contains no file with one of the endings {endings}"),
            );
        }
        for file in files {
            sources.push(read_file(&file)?);
        }
    }
    Ok(sources)
}

fn refuse<T>(path: &Path, why: impl std::fmt::Display) -> Result<T, MirrorError> {
    Err(MirrorError::Usage(format!("{}: {why}", path.display())))
}

fn collect(dir: &Path, depth: usize, into: &mut Vec<PathBuf>) -> Result<(), MirrorError> {
    if depth > DEPTH_MAX {
        return refuse(
            dir,
            format!("more than {DEPTH_MAX} folders inside each other"),
        );
    }
    let listed = std::fs::read_dir(dir).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let listed = listed.map_err(MirrorError::file("read", dir))?;
    let mut paths: Vec<PathBuf> = listed.iter().map(std::fs::DirEntry::path).collect();
    paths.sort();
    for path in paths {
        let ending = path.extension().and_then(|e| e.to_str());
        let is_active = path
            .file_name()
            .is_some_and(|name| name == "queries.active");
        if path.is_dir() {
            collect(&path, depth + 1, into)?;
        } else if is_active || ending.is_some_and(|e| ENDINGS.contains(&e)) {
            into.push(path);
        }
    }
    Ok(())
}

fn read_file(path: &Path) -> Result<QueryFileContent, MirrorError> {
    let unreadable = |e| MirrorError::file("read", path)(e);
    let bytes_count = std::fs::metadata(path).map_err(unreadable)?.len();
    if bytes_count > FILE_BYTES_MAX {
        return refuse(path, format!("{bytes_count} bytes, limit {FILE_BYTES_MAX}"));
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    let shown = path.display().to_string();
    let read = if bytes.starts_with(active::FIRN_MAGIC) {
        Ok(texts(active::parse_firn_file(&bytes), &shown))
    } else {
        match std::str::from_utf8(&bytes) {
            Ok(text) => read_text(text, &shown),
            Err(e) => Err(format!("neither text nor a file of active queries: {e}")),
        }
    };
    read.or_else(|why| refuse(path, why))
}

fn texts(expressions: Vec<String>, origin: &str) -> QueryFileContent {
    let text = |text| QueryText {
        text,
        origin: origin.to_owned(),
        manner: QueryWeightRange::default(),
    };
    QueryFileContent::Texts(expressions.into_iter().map(text).collect())
}

fn read_text(text: &str, origin: &str) -> Result<QueryFileContent, String> {
    let text = text.trim_start_matches('\u{feff}');
    match text.trim_start().chars().next() {
        Some('[') => Ok(texts(active::parse_prometheus_file(text)?, origin)),
        Some('{') if is_selector(text) => read_list(text, origin),
        Some('{') => read_json(text, origin),
        _ if has_groups(text) => read_rules(text, origin),
        _ => read_list(text, origin),
    }
}

/// Returns whether the first line is a selector such as `{job="x"}` and not JSON.
fn is_selector(text: &str) -> bool {
    let first = text.trim_start().lines().next().unwrap_or_default();
    parse(first).is_ok()
}

fn read_json(text: &str, origin: &str) -> Result<QueryFileContent, String> {
    match serde_json::from_str::<Value>(text) {
        Ok(document) if log_expression(&document).is_some() => read_log(text, origin),
        Ok(document) => dashboard::read(&document, origin).map(QueryFileContent::Dashboard),
        Err(e) => {
            let first = text.trim_start().lines().next().unwrap_or_default();
            match serde_json::from_str::<Value>(first) {
                Ok(_) => read_log(text, origin),
                Err(_) => Err(format!("broken JSON: {e}")),
            }
        }
    }
}

/// Parses a query log with one JSON document per line. The last line may be truncated.
fn read_log(text: &str, origin: &str) -> Result<QueryFileContent, String> {
    let mut found = Vec::new();
    let lines: Vec<&str> = text.lines().collect();
    for (number, line) in lines.iter().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        match serde_json::from_str::<Value>(line) {
            Ok(entry) => found.extend(log_expression(&entry).map(|text| QueryText {
                text: text.to_owned(),
                origin: origin.to_owned(),
                manner: QueryWeightRange {
                    range_ms: log_range(&entry["params"]),
                    ..QueryWeightRange::default()
                },
            })),
            Err(_) if number + 1 == lines.len() => {}
            Err(e) => return Err(format!("line {}: broken JSON: {e}", number + 1)),
        }
    }
    if found.is_empty() {
        Err("a query log without a query".to_owned())
    } else {
        Ok(QueryFileContent::Texts(found))
    }
}

/// Returns range and step of a logged range query in milliseconds. Instant queries have a step of
/// zero in the log and return `None`.
fn log_range(params: &Value) -> Option<(i64, i64)> {
    let time_ms = |name: &str| {
        let time = OffsetDateTime::parse(params[name].as_str()?, &Rfc3339).ok()?;
        i64::try_from(time.unix_timestamp_nanos() / 1_000_000).ok()
    };
    let range_ms = time_ms("end")?.checked_sub(time_ms("start")?)?;
    let step_ms = (params["step"].as_f64()? * 1000.0) as i64;
    (range_ms > 0 && step_ms > 0).then_some((range_ms, step_ms))
}

fn log_expression(entry: &Value) -> Option<&str> {
    entry["params"]["query"]
        .as_str()
        .or(entry["query"].as_str())
}

/// Returns whether a line contains the key `groups`, either of a rule file or of a rule file inside
/// a Kubernetes object.
fn has_groups(text: &str) -> bool {
    text.lines()
        .any(|line| line.trim() == "groups:" || line.starts_with("groups:"))
}

fn read_rules(text: &str, origin: &str) -> Result<QueryFileContent, String> {
    let root = firn_yaml::parse(text).map_err(|e| e.to_string())?;
    let groups = root.as_ref().and_then(|root| {
        let spec = root.get("spec").and_then(|spec| spec.get("groups"));
        root.get("groups").or(spec)
    });
    let groups = groups.ok_or("a rule file without groups")?;
    let mut found = Vec::new();
    for group in groups.items() {
        let name = group
            .get("name")
            .and_then(YamlNode::text)
            .unwrap_or_default();
        for rule in group.get("rules").map_or(&[][..], YamlNode::items) {
            let expr = rule.get("expr").and_then(YamlNode::text);
            let text = expr.ok_or_else(|| rule.error("a rule without expr").to_string())?;
            found.push(QueryText {
                text: text.to_owned(),
                origin: format!("{origin}: group {name:?}"),
                manner: QueryWeightRange::default(),
            });
        }
    }
    Ok(QueryFileContent::Texts(found))
}

fn read_list(text: &str, origin: &str) -> Result<QueryFileContent, String> {
    let found = list::read(text, origin)?;
    // Single lines may be invalid, but a file without any valid expression has another type.
    let mut first = None;
    for text in &found {
        match parse(&text.text) {
            Ok(_) => return Ok(QueryFileContent::Texts(found)),
            Err(e) => first = first.or_else(|| Some(format!("{}: {e}", text.origin))),
        }
    }
    match first {
        None => Err("no expression in it".to_owned()),
        Some(first) => Err(format!(
            "not a dashboard, rule file, query log or list of expressions; read as a list, {first}"
        )),
    }
}
