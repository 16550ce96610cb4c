//! Names of types: each is unique in the workspace, so that its name alone identifies a type.

use crate::report;
use crate::sources::all;
use std::collections::BTreeMap;

/// Names that several crates may give to a type of their own.
const SHARED_NAMES: [&str; 9] = [
    "Builder", "Config", "Error", "Iter", "Metrics", "Options", "Request", "Response", "Settings",
];

/// Returns the name of the struct, enum or trait that a line declares.
fn declared_type(line: &str) -> Option<&str> {
    let mut words = line.trim_start();
    if let Some(rest) = words.strip_prefix("pub") {
        let rest = rest.trim_start();
        words = match rest.strip_prefix('(') {
            Some(scope) => scope.split_once(')')?.1.trim_start(),
            None => rest,
        };
    }
    let (keyword, rest) = words.split_once(' ')?;
    let is_type = ["struct", "enum", "trait"].contains(&keyword);
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    Some(&rest[..end.unwrap_or(rest.len())]).filter(|name| is_type && !name.is_empty())
}

#[test]
fn type_name_declared_twice_is_refused() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in all().iter().filter(|s| s.is_production()) {
        if source.crate_name().is_none() {
            continue;
        }
        for (number, line) in source.production_lines() {
            if let Some(name) = declared_type(line) {
                let place = format!("{}:{number}", source.path);
                places.entry(name.to_owned()).or_default().push(place);
            }
        }
    }
    places.retain(|name, at| at.len() > 1 && !SHARED_NAMES.contains(&name.as_str()));
    let findings: Vec<String> = places
        .iter()
        .map(|(name, at)| format!("{name}: {}", at.join(", ")))
        .collect();
    report("type names that are declared more than once", &findings);
}

#[test]
fn declaration_of_a_type_is_found_in_each_form() {
    for (line, name) in [
        ("pub struct Store {", Some("Store")),
        ("    pub(crate) enum Kind<T> {", Some("Kind")),
        ("trait Select: Send {", Some("Select")),
        ("pub(in crate::log) struct Tail;", Some("Tail")),
        ("structure of a page", None),
        ("pub fn new() -> Self {", None),
    ] {
        assert_eq!(declared_type(line), name, "{line}");
    }
}
