//! Named sets of characters: Unicode categories and scripts under the names that Go supports, and
//! the ASCII sets of Perl and POSIX.

use super::class;
use crate::limits::lock;
use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange, HirKind};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// A named set, which exists only once in the process.
pub(super) type Table = Arc<ClassUnicode>;

/// The tables that patterns have used so far, with and without case folding. There are about 250
/// names with tables of about 2 KB each.
static TABLES: Mutex<Option<HashMap<(String, bool), Table>>> = Mutex::new(None);

/// The short and long names of Unicode's general categories, in the form that [`canonical_name`]
/// returns.
const CATEGORIES: &str = "c cc cf cn co l lc ll lm lo lt lu m mc me mn n nd nl no p pc pd pe pf pi \
    po ps s sc sk sm so z zl zp zs any assigned ascii casedletter closepunctuation cntrl \
    combiningmark connectorpunctuation control currencysymbol dashpunctuation decimalnumber digit \
    enclosingmark finalpunctuation format initialpunctuation letter letternumber lineseparator \
    lowercaseletter mark mathsymbol modifierletter modifiersymbol nonspacingmark number \
    openpunctuation other otherletter othernumber otherpunctuation othersymbol paragraphseparator \
    privateuse punct punctuation separator spaceseparator spacingmark symbol titlecaseletter \
    unassigned uppercaseletter";

/// Scripts whose full name has at most four letters. The abbreviations of Unicode have four letters
/// and are not supported by Go; every longer name is a full name.
const SHORT_SCRIPTS: &str = "ahom cham han kawi lao lisu miao modi mro newa nko thai toto vai yi";

/// Returns the set called `name` in `\p{name}`, or `None` if the name is unknown. With `fold_case`,
/// the set includes all other cases of its members.
pub(super) fn find_set(name: &str, fold_case: bool) -> Option<Table> {
    let name = canonical_name(name)?;
    let mut tables = lock(&TABLES);
    let tables = tables.get_or_insert_default();
    if let Some(known) = tables.get(&(name.clone(), fold_case)) {
        return Some(known.clone());
    }
    let mut table = find_canonical_set(&name)?;
    if fold_case {
        table = class::fold_case(table);
    }
    let table = Arc::new(table);
    tables.insert((name, fold_case), table.clone());
    Some(table)
}

/// Returns the set with a name in the form of [`canonical_name`].
fn find_canonical_set(name: &str) -> Option<ClassUnicode> {
    let is_in = |list: &str| list.split_ascii_whitespace().any(|n| n == name);
    if name == "cs" || name == "surrogate" {
        // Surrogates are not characters, so no text contains one.
        return Some(ClassUnicode::empty());
    }
    if is_in(CATEGORIES) {
        return table(&format!(r"\p{{gc={name}}}")).or_else(|| table(&format!(r"\p{{{name}}}")));
    }
    if name.len() > 4 || is_in(SHORT_SCRIPTS) {
        return table(&format!(r"\p{{sc={name}}}"));
    }
    None
}

/// Returns the name in lower case, without the characters that Go ignores. `None` if it cannot be a
/// valid name.
fn canonical_name(name: &str) -> Option<String> {
    let ignored = |c: &char| matches!(c, '_' | '-' | ' ');
    let known = |c: char| c.is_ascii_alphanumeric() || ignored(&c);
    if !name.chars().all(known) {
        return None;
    }
    let name: String = name.chars().filter(|c| !ignored(c)).collect();
    Some(name.to_ascii_lowercase()).filter(|n| !n.is_empty() && !n.starts_with("is"))
}

fn table(syntax: &str) -> Option<ClassUnicode> {
    match regex_syntax::parse(syntax).ok()?.into_kind() {
        HirKind::Class(regex_syntax::hir::Class::Unicode(class)) => Some(class),
        _ => None,
    }
}

/// Returns the set of `\d`, `\s` or `\w`, given its letter.
pub(super) fn perl_set(letter: u8) -> Option<ClassUnicode> {
    match letter {
        b'd' => Some(ascii(&[('0', '9')])),
        b's' => Some(ascii(&[('\t', '\n'), ('\x0c', '\r'), (' ', ' ')])),
        b'w' => Some(ascii(&[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')])),
        _ => None,
    }
}

/// Returns the set of the POSIX class `[:name:]`, or `None` if the name is unknown.
pub(super) fn posix_set(name: &str) -> Option<ClassUnicode> {
    let ranges: &[(char, char)] = match name {
        "alnum" => &[('0', '9'), ('A', 'Z'), ('a', 'z')],
        "alpha" => &[('A', 'Z'), ('a', 'z')],
        "ascii" => &[('\0', '\x7f')],
        "blank" => &[('\t', '\t'), (' ', ' ')],
        "cntrl" => &[('\0', '\x1f'), ('\x7f', '\x7f')],
        "digit" => &[('0', '9')],
        "graph" => &[('!', '~')],
        "lower" => &[('a', 'z')],
        "print" => &[(' ', '~')],
        "punct" => &[('!', '/'), (':', '@'), ('[', '`'), ('{', '~')],
        "space" => &[('\t', '\r'), (' ', ' ')],
        "upper" => &[('A', 'Z')],
        "word" => &[('0', '9'), ('A', 'Z'), ('_', '_'), ('a', 'z')],
        "xdigit" => &[('0', '9'), ('A', 'F'), ('a', 'f')],
        _ => return None,
    };
    Some(ascii(ranges))
}

fn ascii(ranges: &[(char, char)]) -> ClassUnicode {
    ClassUnicode::new(
        ranges
            .iter()
            .map(|(first, last)| ClassUnicodeRange::new(*first, *last)),
    )
}
