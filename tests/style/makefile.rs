//! Each variable of the Makefile has one definition. Make ignores a second `?=` without a message.

use crate::{report, root};
use std::collections::HashSet;

#[test]
fn variables_of_the_makefile_are_defined_once() {
    let text = std::fs::read_to_string(root().join("Makefile")).expect("the Makefile");
    let mut seen = HashSet::new();
    let repeated: Vec<String> = text
        .lines()
        .filter_map(defined_variable)
        .filter(|name| !seen.insert(*name))
        .map(str::to_owned)
        .collect();
    assert!(seen.contains("SCRIPTS"), "variables are found: {seen:?}");
    report("defined twice in the Makefile", &repeated);
}

/// Returns the name of the variable that a line defines at its start, if it defines one.
fn defined_variable(line: &str) -> Option<&str> {
    let (name, rest) = line.split_once([' ', '?', ':', '='])?;
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
    let operator = rest.trim_start().trim_start_matches(['?', ':']);
    (is_name && (operator.starts_with('=') || line[name.len()..].starts_with('='))).then_some(name)
}
