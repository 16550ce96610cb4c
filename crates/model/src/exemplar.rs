//! Exemplars: single observations, with labels that lead to their trace, attached to a sample.

use crate::labels::LabelsRef;
use crate::sample::TimestampMs;

/// One observation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar<'a> {
    /// Labels of its own, not those of the series.
    pub labels: LabelsRef<'a>,
    /// What was observed.
    pub value: f64,
    /// When, if the source says.
    pub time: Option<TimestampMs>,
}

/// The exemplars of a sample, their label sets one behind the other in one buffer. Reuse one with
/// [`Exemplars::clear`] to keep its memory.
#[derive(Clone, Debug, Default)]
pub struct Exemplars {
    label_bytes: Vec<u8>,
    rows: Vec<Row>,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    labels_end: usize,
    value: f64,
    time: Option<TimestampMs>,
}

impl Exemplars {
    /// Empties the list and keeps its memory.
    pub fn clear(&mut self) {
        self.label_bytes.clear();
        self.rows.clear();
    }

    /// Adds an exemplar.
    pub fn push(&mut self, labels: LabelsRef<'_>, value: f64, time: Option<TimestampMs>) {
        self.label_bytes.extend_from_slice(labels.as_bytes());
        self.rows.push(Row {
            labels_end: self.label_bytes.len(),
            value,
            time,
        });
    }

    /// Adds all of another list.
    pub fn extend(&mut self, others: &Exemplars) {
        for exemplar in others.iter() {
            self.push(exemplar.labels, exemplar.value, exemplar.time);
        }
    }

    /// Exemplars in the list.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The exemplars in the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = Exemplar<'_>> {
        let mut start = 0;
        self.rows.iter().map(move |row| {
            let labels = &self.label_bytes[start..row.labels_end];
            start = row.labels_end;
            Exemplar {
                labels: LabelsRef::from_canonical(labels),
                value: row.value,
                time: row.time,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::Labels;

    #[test]
    fn exemplars_pushed_come_back_with_their_labels() {
        let mut exemplars = Exemplars::default();
        let labels = Labels::from_pairs([("trace_id", "1"), ("span", "x")]);
        for _ in 0..2 {
            exemplars.clear();
            exemplars.push(labels.as_ref(), 1.5, Some(7));
            exemplars.push(Labels::empty().as_ref(), 2.0, None);
            let found: Vec<_> = exemplars.iter().collect();
            assert_eq!(found[0].labels, labels.as_ref());
            assert_eq!((found[0].value, found[0].time), (1.5, Some(7)));
            assert_eq!((found[1].labels.is_empty(), found[1].time), (true, None));
            assert_eq!(exemplars.len(), 2);
        }
    }
}
