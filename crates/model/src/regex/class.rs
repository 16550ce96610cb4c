//! Collects the members of a bracketed class.
//!
//! Members are folded once for the whole class and not one by one, so that a class costs what its
//! text and its tables cost.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

/// The largest code point.
const CODE_POINT_MAX: u32 = char::MAX as u32;

/// The members of a class that is being read.
#[derive(Debug, Default)]
pub(super) struct ClassMembers {
    fold_case: bool,
    ranges: Vec<ClassUnicodeRange>,
    tables: Vec<ClassUnicodeRange>,
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

    /// Adds a named set, or with `negated` all that is not in it. Returns how many ranges it has.
    pub fn add_table(&mut self, mut table: ClassUnicode, negated: bool) -> usize {
        if self.fold_case {
            table = folded(table);
        }
        if negated {
            table.negate();
        }
        self.tables.extend_from_slice(table.ranges());
        table.ranges().len()
    }

    /// The class; with `negated` all that is not in it.
    pub fn finish(self, negated: bool) -> ClassUnicode {
        let mut class = ClassUnicode::new(self.ranges);
        if self.fold_case {
            class = folded(class);
        }
        class.union(&ClassUnicode::new(self.tables));
        if negated {
            class.negate();
        }
        class
    }
}

fn folded(mut class: ClassUnicode) -> ClassUnicode {
    class
        .try_case_fold_simple()
        .expect("the tables of case folding are compiled in");
    class
}
