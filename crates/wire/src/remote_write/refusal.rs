//! Series that cannot stand, counted by reason.

/// Why a series, or a histogram of one, is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// There is no metric name, or it is empty or not UTF-8.
    MetricName,
    /// A label's name is empty or not UTF-8.
    LabelName,
    /// A label's value is not UTF-8.
    LabelValue,
    /// Two labels have the same name.
    DuplicateLabel,
    /// There are more labels than allowed.
    TooManyLabels,
    /// A label's name is longer than allowed.
    LabelNameTooLong,
    /// A label's value is longer than allowed.
    LabelValueTooLong,
    /// A native histogram contradicts itself.
    Histogram,
    /// References of labels are odd in number, or one is not in the table of symbols.
    LabelRefs,
    /// A reference of metadata is not in the table of symbols.
    MetadataRefs,
    /// A series of remote write 2.0 has no sample.
    NoSamples,
    /// A metric of OTLP has no data, or of a kind that is not known.
    MetricType,
    /// Points of OTLP relate to those before them in a way that is not taken.
    Temporality,
    /// A delta is not newer than what was added up.
    DeltaOutOfOrder,
    /// A delta is of an older beginning than what was added up.
    DeltaOlderStart,
    /// There is no room for one more stream of deltas.
    DeltaLimit,
}

/// What was refused for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub refusal: Refusal,
    /// Series that lost all their samples, or some in the case of histograms.
    pub series_count: usize,
    /// Samples that were lost, or exemplars.
    pub sample_count: usize,
    /// What is wrong with the first one, in Prometheus's words where it has some.
    pub first: String,
}

/// Everything that was refused, one entry a reason, in the order in which they first occur in the
/// request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals(Vec<Entry>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// Where in the message the first one stands.
    at: usize,
    refused: Refused,
}

impl Refusals {
    /// Counts a series that begins at `at` of the message, in any order of these; `message` is
    /// called for the first ones of their reason.
    pub(crate) fn add(
        &mut self,
        at: usize,
        refusal: Refusal,
        sample_count: usize,
        message: impl FnOnce() -> String,
    ) {
        let known = self.0.iter().position(|e| e.refused.refusal == refusal);
        let mut entry = match known {
            Some(known) => self.0.remove(known),
            None => Entry {
                at: usize::MAX,
                refused: Refused {
                    refusal,
                    series_count: 0,
                    sample_count: 0,
                    first: String::new(),
                },
            },
        };
        entry.refused.series_count += 1;
        entry.refused.sample_count += sample_count;
        if at < entry.at {
            entry.at = at;
            entry.refused.first = message();
        }
        let place = self.0.partition_point(|e| e.at <= entry.at);
        self.0.insert(place, entry);
    }

    /// One entry a reason.
    pub fn iter(&self) -> impl Iterator<Item = &Refused> {
        self.0.iter().map(|e| &e.refused)
    }

    /// Whether nothing was refused.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
