//! The code uses the words of `docs/GLOSSARY.md`, and none of those that it refuses: neither in
//! comments nor in names. Texts in quotes are not looked at: errors and metrics keep theirs.

use crate::glossary::{lines_without_texts, refused, words};
use crate::report;
use crate::sources::{Source, all};

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
    let words: Vec<String> = words(&crate::glossary::without_texts(code)).collect();
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
    let lines = lines_without_texts(source).into_iter().enumerate();
    lines.map(|(i, line)| (i + 1, line)).collect()
}
