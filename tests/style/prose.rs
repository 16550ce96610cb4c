//! The Markdown files read as plain English: short lines, few headless clauses, a short changelog.
//!
//! The patterns are symptoms of a style that readers stumble over ("what is stored" for "stored
//! samples"); `docs/STYLE.md` has the rules themselves.

use crate::links::documents;
use crate::{report, root};
use std::fs;
use std::path::Path;

const LINE_CHARS_MAX: usize = 200;
const CHANGELOG_LINES_MAX: usize = 100;
/// One line in two hundred may have a headless clause: a question in a heading needs one.
const LINES_PER_HEADLESS: usize = 200;

/// Words that make a headless clause when they follow "what".
const AFTER_WHAT: [&str; 27] = [
    "is", "are", "was", "were", "it", "has", "have", "comes", "came", "a", "an", "the", "they",
    "makes", "made", "does", "of", "cannot", "no", "can", "lies", "stands", "one", "others",
    "becomes", "became", "had",
];

#[test]
fn markdown_with_long_lines_is_refused() {
    let mut findings = Vec::new();
    each_line(|shown, number, line| {
        let chars = line.chars().count();
        if chars > LINE_CHARS_MAX {
            findings.push(format!("{shown}:{number}: {chars} characters"));
        }
    });
    report("long lines of Markdown", &findings);
}

#[test]
fn markdown_with_many_headless_clauses_is_refused() {
    let mut lines = 0;
    let mut findings = Vec::new();
    each_line(|shown, number, line| {
        lines += 1;
        if has_headless_clause(line) {
            findings.push(format!("{shown}:{number}: {}", line.trim()));
        }
    });
    if findings.len() * LINES_PER_HEADLESS > lines {
        report("headless clauses", &findings);
    }
}

#[test]
fn long_changelog_is_refused() {
    let text = fs::read_to_string(root().join("CHANGELOG.md")).expect("a readable changelog");
    let lines = text.lines().count();
    assert!(
        lines <= CHANGELOG_LINES_MAX,
        "{lines} lines, limit {CHANGELOG_LINES_MAX}"
    );
}

#[test]
fn headless_clause_is_found_where_the_noun_is_missing() {
    let check = |line: &str, expected: bool| {
        assert_eq!(has_headless_clause(line), expected, "{line}");
    };
    check("It returns what is stored.", true);
    check("What the log holds is durable.", true);
    check("`what`: is it?", false);
    check("The flag selects what Firn does.", false);
    check("Somewhat is left.", false);
    check("Queries return stored samples.", false);
}

fn has_headless_clause(line: &str) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    let follows = |pair: &[&str]| {
        let next = pair[1].trim_end_matches(|c: char| !c.is_alphanumeric());
        pair[0]
            .trim_start_matches(|c: char| !c.is_alphanumeric())
            .eq_ignore_ascii_case("what")
            && AFTER_WHAT.contains(&next)
    };
    words.windows(2).any(follows)
}

/// Calls `see` with the path, number and text of each line of each document.
fn each_line(mut see: impl FnMut(&str, usize, &str)) {
    for document in documents() {
        let text = fs::read_to_string(&document).expect("a readable document");
        let shown = document.strip_prefix(root()).unwrap_or(Path::new(""));
        let shown = shown.display().to_string();
        for (number, line) in (1..).zip(text.lines()) {
            see(&shown, number, line);
        }
    }
}
