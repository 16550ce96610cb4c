//! The words that `docs/GLOSSARY.md` refuses, and the words of a line of code.

use crate::sources::Source;
use std::collections::BTreeSet;

/// The glossary of this checkout, whichever one is counted.
const GLOSSARY: &str = include_str!("../../docs/GLOSSARY.md");

/// The words of the left column of the glossary's last table.
pub fn refused() -> BTreeSet<String> {
    let (_, table) = GLOSSARY
        .split_once("| not | but |\n|---|---|\n")
        .expect("docs/GLOSSARY.md has a table of words that are not used");
    let rows = table.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = rows.filter_map(|row| row.split('|').next());
    let words = cells.flat_map(|cell| cell.split(','));
    words.map(|word| word.trim().to_owned()).collect()
}

/// Returns the production lines of a source in order, without the text in quotes.
pub fn lines_without_texts(source: &Source) -> Vec<String> {
    let lines: Vec<&str> = source.production_lines().map(|(_, line)| line).collect();
    let text = without_texts(&lines.join("\n"));
    text.lines().map(str::to_owned).collect()
}

/// The words of comments and names, in lower case: `is_retired` has two, `LosesCrew` too.
pub fn words(line: &str) -> impl Iterator<Item = String> {
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

/// Returns the code without the text in quotes; the number of lines stays the same.
pub fn without_texts(code: &str) -> String {
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
