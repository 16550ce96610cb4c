//! Classes of characters: ranges of their own and named tables, which all patterns share.
//!
//! A table like `\pL` has hundreds of ranges. A class names its tables and does not copy them, so
//! that it takes what its text takes, however often a pattern names one. Members are folded once
//! for the whole class and not one by one.

use super::unicode::Table;
use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};
use std::sync::Arc;

/// The largest code point.
const CODE_POINT_MAX: u32 = char::MAX as u32;

/// The characters that stand in one place of a value.
#[derive(Clone, Debug)]
pub(super) struct Class {
    ranges: ClassUnicode,
    /// Each with whether it stands for its opposite.
    tables: Vec<(Table, bool)>,
    negated: bool,
}

impl Class {
    /// The class of these ranges.
    pub fn of_ranges(ranges: ClassUnicode) -> Self {
        Self {
            ranges,
            tables: Vec::new(),
            negated: false,
        }
    }

    /// Whether `c` is in it.
    pub fn contains(&self, c: char) -> bool {
        let in_tables = || {
            let has = |(table, negated): &(Table, bool)| is_in(table, c) != *negated;
            self.tables.iter().any(has)
        };
        (is_in(&self.ranges, c) || in_tables()) != self.negated
    }

    /// How many ranges it has, those of its tables included.
    pub fn ranges_count(&self) -> usize {
        let tables = self.tables.iter().map(|(table, _)| table.ranges().len());
        self.ranges.ranges().len() + tables.sum::<usize>()
    }

    /// Its own ranges, if it has no tables.
    pub fn plain(&self) -> Option<&ClassUnicode> {
        self.tables.is_empty().then_some(&self.ranges)
    }

    /// All its ranges, those of its tables copied.
    pub fn flat(&self) -> ClassUnicode {
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

/// The members of a class that is being read.
#[derive(Debug, Default)]
pub(super) struct ClassMembers {
    fold_case: bool,
    ranges: Vec<ClassUnicodeRange>,
    /// Small sets, which are folded already.
    sets: Vec<ClassUnicodeRange>,
    tables: Vec<(Table, bool)>,
}

impl ClassMembers {
    /// An empty class; with `fold_case` every member brings in its other cases.
    pub fn new(fold_case: bool) -> Self {
        Self {
            fold_case,
            ..Self::default()
        }
    }

    /// Adds code points from `first` to `last`; surrogates among them are no characters.
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

    /// Adds a small set, or with `negated` all that is not in it.
    pub fn add_set(&mut self, mut set: ClassUnicode, negated: bool) {
        if self.fold_case {
            set = folded(set);
        }
        if negated {
            set.negate();
        }
        self.sets.extend_from_slice(set.ranges());
    }

    /// Adds a named table, whose cases are folded already if they are to be, or with `negated` all
    /// that is not in it.
    pub fn add_table(&mut self, table: Table, negated: bool) {
        let is_same =
            |(known, sign): &(Table, bool)| Arc::ptr_eq(known, &table) && *sign == negated;
        if !self.tables.iter().any(is_same) {
            self.tables.push((table, negated));
        }
    }

    /// The class; with `negated` all that is not in it.
    pub fn finish(self, negated: bool) -> Class {
        let mut ranges = ClassUnicode::new(self.ranges);
        if self.fold_case {
            ranges = folded(ranges);
        }
        ranges.union(&ClassUnicode::new(self.sets));
        let has_tables = !self.tables.is_empty();
        if negated && !has_tables {
            ranges.negate();
        }
        Class {
            ranges,
            tables: self.tables,
            negated: negated && has_tables,
        }
    }
}

/// `class` with the other cases of its members.
pub(super) fn folded(mut class: ClassUnicode) -> ClassUnicode {
    class
        .try_case_fold_simple()
        .expect("the tables of case folding are compiled in");
    class
}
