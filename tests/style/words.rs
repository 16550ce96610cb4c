//! The headers of files use the words of `docs/GLOSSARY.md`, and none of those that it refuses.

use crate::sources::all;
use crate::{report, root};
use std::collections::BTreeSet;

/// The words of the left column of the glossary's last table.
fn refused() -> BTreeSet<String> {
    let path = root().join("docs/GLOSSARY.md");
    let text = std::fs::read_to_string(path).expect("docs/GLOSSARY.md is readable");
    let (_, table) = text
        .split_once("| not | but |\n|---|---|\n")
        .expect("docs/GLOSSARY.md has a table of words that are not used");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = rows.filter_map(|row| row.split('|').next());
    let words = cells.flat_map(|cell| cell.split(','));
    words.map(|word| word.trim().to_owned()).collect()
}

#[test]
fn header_with_a_refused_word_is_refused() {
    let refused = refused();
    assert!(refused.len() > 10, "{refused:?}");
    let mut findings = Vec::new();
    for source in all() {
        let header = source
            .text
            .lines()
            .filter_map(|line| line.strip_prefix("//!"));
        for (number, line) in header.enumerate() {
            let words = line.split(|c: char| !c.is_ascii_alphabetic());
            for word in words.map(str::to_ascii_lowercase) {
                if refused.contains(&word) {
                    findings.push(format!("{}:{}: {word:?}", source.path, number + 1));
                }
            }
        }
    }
    report("words that docs/GLOSSARY.md refuses", &findings);
}
