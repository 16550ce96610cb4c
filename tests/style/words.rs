//! The code uses the words of `docs/GLOSSARY.md`, and none of those that it refuses: neither in
//! comments nor in names. Texts in quotes are not looked at: errors and metrics keep theirs.

use crate::sources::{Source, all};
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
fn refused_word_in_comments_or_names_is_refused() {
    let refused = refused();
    assert!(refused.len() > 10, "{refused:?}");
    let mut findings = Vec::new();
    for source in all() {
        for (number, line) in looked_at(&source) {
            for word in words(&line).filter(|word| refused.contains(word)) {
                findings.push(format!("{}:{number}: {word:?}", source.path));
            }
        }
    }
    report("words that docs/GLOSSARY.md refuses", &findings);
}

#[test]
fn words_of_a_line_come_without_its_texts() {
    let code = "fn is_retired(a: LosesCrew) { 'a: f('\"', \"born \\\" \", r#\"rim\"#) } // nobody";
    let words: Vec<String> = words(&without_texts(code)).collect();
    let expected = "fn is retired a loses crew a f nobody";
    assert_eq!(words.join(" "), expected);
}

/// The lines of a source that are held, with their numbers: of tests the header alone.
fn looked_at(source: &Source) -> Vec<(usize, String)> {
    if !source.is_production() {
        let header = source.text.lines().enumerate();
        let header = header.filter(|(_, line)| line.starts_with("//!"));
        return header.map(|(i, line)| (i + 1, line.to_owned())).collect();
    }
    let lines = source.production_lines();
    let text: Vec<&str> = lines.map(|(_, line)| line).collect();
    let text = without_texts(&text.join("\n"));
    let lines = text.lines().enumerate();
    lines.map(|(i, line)| (i + 1, line.to_owned())).collect()
}

/// The words of comments and names, in lower case: `is_retired` has two, `LosesCrew` too.
fn words(line: &str) -> impl Iterator<Item = String> {
    let mut split = String::new();
    let mut was_lower = false;
    for c in line.chars() {
        if c.is_ascii_uppercase() && was_lower {
            split.push(' ');
        }
        was_lower = c.is_ascii_lowercase();
        split.push(if c.is_ascii_alphabetic() { c } else { ' ' });
    }
    let words: Vec<String> = split.split_whitespace().map(str::to_lowercase).collect();
    words.into_iter()
}

/// The code without what stands in quotes; its lines stay.
fn without_texts(code: &str) -> String {
    let mut kept = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(c) = rest.chars().next() {
        let skipped = match c {
            '/' if rest.starts_with("//") => {
                let end = rest.find('\n').unwrap_or(rest.len());
                kept.push_str(&rest[..end]);
                rest = &rest[end..];
                continue;
            }
            '"' => text_bytes(rest),
            'r' if rest.starts_with("r\"") || rest.starts_with("r#") => raw_text_bytes(rest),
            '\'' => char_bytes(rest),
            _ => 0,
        };
        if skipped == 0 {
            kept.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            kept.extend(rest[..skipped].chars().filter(|c| *c == '\n'));
            kept.push(' ');
            rest = &rest[skipped..];
        }
    }
    kept
}

/// Bytes of the string literal at the beginning.
fn text_bytes(rest: &str) -> usize {
    let mut is_escaped = false;
    let end = rest.char_indices().skip(1).find(|(_, c)| {
        let is_end = *c == '"' && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        is_end
    });
    end.map_or(rest.len(), |(at, _)| at + 1)
}

/// Bytes of the raw string literal at the beginning; zero for a raw name.
fn raw_text_bytes(rest: &str) -> usize {
    let hashes = rest[1..].len() - rest[1..].trim_start_matches('#').len();
    let start = 1 + hashes;
    if !rest[start..].starts_with('"') {
        return 0;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let end = rest[start + 1..].find(&close);
    end.map_or(rest.len(), |at| start + 1 + at + close.len())
}

/// Bytes of the character literal at the beginning; zero for a lifetime.
fn char_bytes(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, _))) => {
            let end = rest[at + 1..].find('\'');
            end.map_or(rest.len(), |end| at + 1 + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}
