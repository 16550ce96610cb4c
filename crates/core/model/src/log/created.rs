//! The series that an append created, in the encoding of [`crate::label_code`].
//!
//! Neighbouring series share most labels, so the encoding is much smaller than the labels. Labels
//! are decoded when they are needed, on many threads in parallel. An engine may store the encoded
//! bytes unchanged.

use crate::label_code::{LabelsEncoder, MalformedLabels, SeriesRecords};
use crate::labels::{LabelsRef, push_uvarint};

/// Created series in ascending order of slots. Their encoding is valid.
#[derive(Clone, Debug, Default)]
pub struct CreatedSeries {
    count: usize,
    last_slot: u64,
    bytes: Vec<u8>,
    encoder: LabelsEncoder,
}

impl CreatedSeries {
    /// Validates and copies the encoding of `count` series. Bytes after them are ignored.
    pub fn from_bytes(count: u64, bytes: &[u8]) -> Result<Self, MalformedLabels> {
        let (last_slot, behind) = SeriesRecords::new(bytes, Some(count)).check()?;
        Ok(Self {
            // Each series needs at least one byte.
            count: count as usize,
            last_slot,
            bytes: bytes[..bytes.len() - behind.len()].to_vec(),
            encoder: LabelsEncoder::default(),
        })
    }

    /// Adds a series. Panics if its slot is less than the previous one.
    pub fn push(&mut self, slot: u64, labels: LabelsRef<'_>) {
        let distance = slot.checked_sub(self.last_slot);
        let distance = distance.expect("slots of created series ascend");
        push_uvarint(&mut self.bytes, distance);
        self.encoder.push(&mut self.bytes, labels);
        self.last_slot = slot;
        self.count += 1;
    }

    /// Returns the number of created series.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether no series was created.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the encoding: for each series the distance of its slot from the previous one, and
    /// its labels.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns a reader of the series, which decodes them in one of several ways.
    pub fn records(&self) -> SeriesRecords<'_> {
        SeriesRecords::new(&self.bytes, None)
    }

    /// Calls `each` with the slot and the labels of each series, in ascending order of slots.
    pub fn for_each(&self, each: impl FnMut(u64, LabelsRef<'_>)) {
        let read = self.records().read_labels(each);
        debug_assert_eq!(read, Ok(()), "code of created series is sound");
    }

    /// Returns the memory of the encoded series in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::Labels;

    fn list(created: &CreatedSeries) -> Vec<(u64, Labels)> {
        let mut list = Vec::new();
        created.for_each(|slot, labels| list.push((slot, labels.to_owned())));
        list
    }

    #[test]
    fn created_series_from_bytes_are_those_that_were_pushed_and_take_more() {
        let labels = ["a", "b", "c"].map(|pod| Labels::from_pairs([("job", "x"), ("pod", pod)]));
        let [a, b, c] = &labels;
        let mut pushed = CreatedSeries::default();
        pushed.push(3, a.as_ref());
        pushed.push(9, b.as_ref());
        let bytes = [pushed.as_bytes(), b"behind"].concat();
        let mut read = CreatedSeries::from_bytes(2, &bytes).unwrap();
        assert_eq!(read.as_bytes(), pushed.as_bytes());
        read.push(9, c.as_ref());
        pushed.push(9, c.as_ref());
        let expected = [(3, a.clone()), (9, b.clone()), (9, c.clone())];
        assert_eq!(list(&read), expected);
        assert_eq!(list(&pushed), expected);
        assert_eq!(read.len(), 3);
    }

    #[test]
    fn created_series_from_fewer_bytes_are_refused() {
        let mut pushed = CreatedSeries::default();
        pushed.push(3, Labels::from_pairs([("job", "x")]).as_ref());
        let bytes = pushed.as_bytes();
        for len in 0..bytes.len() {
            assert!(CreatedSeries::from_bytes(1, &bytes[..len]).is_err());
        }
        assert!(CreatedSeries::from_bytes(u64::MAX, bytes).is_err());
    }

    #[test]
    #[should_panic(expected = "slots of created series ascend")]
    fn created_series_out_of_order_is_refused() {
        let mut created = CreatedSeries::default();
        created.push(2, LabelsRef::from_canonical(&[]));
        created.push(1, LabelsRef::from_canonical(&[]));
    }
}
