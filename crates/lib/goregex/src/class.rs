//! Character classes: individual ranges, and named tables that all patterns share.
//!
//! A table such as `\pL` has hundreds of ranges. A class refers to its tables instead of copying
//! them, so its memory is proportional to its text, regardless of the number of references. Case
//! folding is applied to the whole class at once and not to each member.

use super::unicode::Table;
use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};
use std::sync::Arc;

/// The largest code point of Unicode, U+10FFFF.
const CODE_POINT_MAX: u32 = char::MAX as u32;

/// The set of characters that match at one position of a value.
#[derive(Clone, Debug)]
pub(super) struct CharClass {
    ranges: ClassUnicode,
    /// The tables of the class, each with whether it is negated.
    tables: Vec<(Table, bool)>,
    negated: bool,
}

impl CharClass {
    /// Creates the class of the given ranges, without tables.
    pub fn from_ranges(ranges: ClassUnicode) -> Self {
        Self {
            ranges,
            tables: Vec::new(),
            negated: false,
        }
    }

    /// Returns whether the class contains `c`, by binary searches.
    pub fn contains(&self, c: char) -> bool {
        let in_tables = || {
            let has = |(table, negated): &(Table, bool)| is_in(table, c) != *negated;
            self.tables.iter().any(has)
        };
        (is_in(&self.ranges, c) || in_tables()) != self.negated
    }

    /// Returns the number of ranges, including those of tables.
    pub fn ranges_count(&self) -> usize {
        let tables = self.tables.iter().map(|(table, _)| table.ranges().len());
        self.ranges.ranges().len() + tables.sum::<usize>()
    }

    /// Returns the individual ranges, if the class has no tables.
    pub fn plain_ranges(&self) -> Option<&ClassUnicode> {
        self.tables.is_empty().then_some(&self.ranges)
    }

    /// Returns all ranges of the class as one set. Those of tables are copied.
    pub fn to_flat_set(&self) -> ClassUnicode {
        let mut flat = self.ranges.clone();
        for (table, negated) in &self.tables {
            if *negated {
                let mut table = ClassUnicode::clone(table);
                table.negate();
                flat.union(&table);
            } else {
                flat.union(table);
            }
        }
        if self.negated {
            flat.negate();
        }
        flat
    }
}

fn is_in(class: &ClassUnicode, c: char) -> bool {
    let ranges = class.ranges();
    let behind = ranges.partition_point(|range| range.start() <= c);
    let last = behind.checked_sub(1).and_then(|at| ranges.get(at));
    last.is_some_and(|range| c <= range.end())
}

/// The members of a class while it is parsed.
#[derive(Debug, Default)]
pub(super) struct CharClassBuilder {
    fold_case: bool,
    ranges: Vec<ClassUnicodeRange>,
    /// The ranges of small sets, which are already case-folded.
    sets: Vec<ClassUnicodeRange>,
    tables: Vec<(Table, bool)>,
}

impl CharClassBuilder {
    /// Creates an empty class. With `fold_case`, every member also adds its other cases.
    pub fn new(fold_case: bool) -> Self {
        Self {
            fold_case,
            ..Self::default()
        }
    }

    /// Adds the code points from `first` to `last`. Surrogates are skipped, because they are not
    /// characters.
    pub fn add_range(&mut self, first: u32, last: u32) {
        for (low, high) in [(0, 0xd7ff), (0xe000, CODE_POINT_MAX)] {
            let part = (
                char::from_u32(first.max(low)),
                char::from_u32(last.min(high)),
            );
            if let (Some(first), Some(last)) = part
                && first <= last
            {
                self.ranges.push(ClassUnicodeRange::new(first, last));
            }
        }
    }

    /// Adds a small set, or its complement if `negated` is set.
    pub fn add_set(&mut self, mut set: ClassUnicode, negated: bool) {
        if self.fold_case {
            set = fold_case(set);
        }
        if negated {
            set.negate();
        }
        self.sets.extend_from_slice(set.ranges());
    }

    /// Adds a named table, or its complement if `negated` is set. The table must be case-folded
    /// already if necessary.
    pub fn add_table(&mut self, table: Table, negated: bool) {
        let is_same =
            |(known, sign): &(Table, bool)| Arc::ptr_eq(known, &table) && *sign == negated;
        if !self.tables.iter().any(is_same) {
            self.tables.push((table, negated));
        }
    }

    /// Returns the class, or its complement if `negated` is set.
    pub fn finish(self, negated: bool) -> CharClass {
        let mut ranges = ClassUnicode::new(self.ranges);
        if self.fold_case {
            ranges = fold_case(ranges);
        }
        ranges.union(&ClassUnicode::new(self.sets));
        let has_tables = !self.tables.is_empty();
        if negated && !has_tables {
            ranges.negate();
        }
        CharClass {
            ranges,
            tables: self.tables,
            negated: negated && has_tables,
        }
    }
}

/// Returns `class` together with the other cases of its members.
pub(super) fn fold_case(mut class: ClassUnicode) -> ClassUnicode {
    class
        .try_case_fold_simple()
        .expect("the tables of case folding are compiled in");
    class
}
