//! The section of labels and terms of a block: finds the terms of a label, and reads their values.

use super::files::BlockFiles;
use super::labels::{BlockLabel, LabelTable, TermsTable};
use super::planned::{EachTerm, ListedTerm};
use super::terms::TermsUnit;
use crate::encoding::DecodeError;
use crate::error::StorageError;
use firn_model::error::Error;
use firn_model::labels::push_pair;
use firn_model::regex::Regex;
use std::ops::Range;
use std::sync::Arc;

/// All labels of a block and the units of their values.
#[derive(Debug)]
pub(super) struct TermsSection {
    pub(super) labels: LabelTable,
    pub(super) terms: TermsTable,
}

impl TermsSection {
    /// Returns the unit with this index and the number of its first term.
    fn unit(
        &self,
        files: &BlockFiles,
        index: usize,
    ) -> Result<(u32, Arc<TermsUnit>), StorageError> {
        let entry = self.terms.units.get(index);
        let first = entry.map_or(0, |entry| entry.first);
        let len = self.unit_term_count(index);
        let opened = files.load_unit(entry, |bytes| TermsUnit::open(bytes, len))?;
        Ok((first as u32, opened))
    }

    /// Returns the number of terms in the unit with this index.
    pub(super) fn unit_term_count(&self, index: usize) -> usize {
        let units = &self.terms.units;
        let first = units.get(index).map_or(0, |entry| entry.first);
        let next = units.get(index + 1);
        let end = next.map_or(u64::from(self.labels.term_count()), |next| next.first);
        end.saturating_sub(first) as usize
    }

    /// Reads the label value of a term. Empty values are reported as damage.
    pub(super) fn read_value(
        &self,
        files: &BlockFiles,
        term: u32,
    ) -> Result<Vec<u8>, StorageError> {
        let index = self.terms.units.find(term.into()).unwrap_or(0);
        let (first, unit) = self.unit(files, index)?;
        let mut value = Vec::new();
        let read = unit.value(term.saturating_sub(first) as usize, &mut value);
        let has_bytes = (!value.is_empty()).then_some(());
        let read = read.and(has_bytes.ok_or(DecodeError("empty value of a label")));
        read.map_err(|e| files.malformed_unit(self.terms.units.get(index), e))?;
        Ok(value)
    }

    /// Appends the label name and value of a term in the encoding of label sets.
    pub(super) fn push_pair(
        &self,
        files: &BlockFiles,
        term: u32,
        into: &mut Vec<u8>,
    ) -> Result<(), StorageError> {
        let label = self.labels.find_by_term(term);
        let label = label.ok_or_else(|| files.missing_value_error())?;
        push_pair(into, label.name.as_bytes(), &self.read_value(files, term)?);
        Ok(())
    }

    /// Returns the term of the value with this number, or an error for a value that does not exist.
    pub(super) fn find_value_term(
        &self,
        files: &BlockFiles,
        label: u32,
        value: i64,
    ) -> Result<u32, StorageError> {
        let label = self.labels.get(label);
        let term = label.and_then(|label| label.value_term(value));
        term.ok_or_else(|| files.missing_value_error())
    }

    /// Returns the term of the label that has this value, or `None` if there is no such term.
    pub(super) fn find_term(
        &self,
        files: &BlockFiles,
        label: &BlockLabel,
        value: &[u8],
    ) -> Result<Option<ListedTerm>, Error> {
        let Some(index) = self.terms.find(label, value) else {
            return Ok(None);
        };
        let (first, unit) = self.unit(files, index)?;
        let at = |term: u32| (term.saturating_sub(first) as usize).min(unit.len());
        let found = unit.find(value, at(label.terms.start)..at(label.terms.end));
        let found = found.map_err(|e| files.malformed_unit(self.terms.units.get(index), e))?;
        let listed = found.and_then(|at| {
            let postings = unit.postings(at)?;
            let term = first + at as u32;
            Some(ListedTerm { term, postings })
        });
        Ok(listed)
    }

    /// Returns the range of terms of the label that the regular expression must be matched against.
    pub(super) fn find_regex_range(
        &self,
        label: &BlockLabel,
        regex: &Regex,
        wants_match: bool,
    ) -> Range<u32> {
        let prefix = regex.prefix();
        if wants_match && !prefix.is_empty() {
            self.terms.find_prefix_range(label, prefix)
        } else {
            label.terms.clone()
        }
    }

    /// Calls `each` with each term of the range, its posting list and its value, in
    /// order.
    pub(super) fn for_each_term(
        &self,
        files: &BlockFiles,
        terms: Range<u32>,
        each: &mut EachTerm<'_>,
    ) -> Result<(), Error> {
        let mut next = terms.start;
        while next < terms.end {
            let index = self.terms.units.find(next.into()).unwrap_or(0);
            let (first, unit) = self.unit(files, index)?;
            let at = |term: u32| (term.saturating_sub(first) as usize).min(unit.len());
            let among = at(next)..at(terms.end);
            let entry = self.terms.units.get(index);
            if among.is_empty() {
                let e = DecodeError("number of no term");
                return Err(files.malformed_unit(entry, e).into());
            }
            next = first + among.end as u32;
            unit.for_each_value(
                among,
                |at, value| {
                    let lacks = || files.malformed_unit(entry, DecodeError("number of no term"));
                    let postings = unit.postings(at).ok_or_else(lacks)?;
                    let term = first + at as u32;
                    each(ListedTerm { term, postings }, value)
                },
                |e| files.malformed_unit(entry, e).into(),
            )?;
        }
        Ok(())
    }
}
