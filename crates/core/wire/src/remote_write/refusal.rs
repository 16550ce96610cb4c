//! Rejected series and points, counted by reason.

/// The reason why a series, a histogram of it, or an OTLP point is rejected; a label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WriteRejectionReason {
    /// The metric name is missing, empty or not UTF-8.
    MetricName,
    /// A label name is empty or not UTF-8.
    LabelName,
    /// A label value is not valid UTF-8.
    LabelValue,
    /// Two labels of the series have the same name.
    DuplicateLabel,
    /// The series has more labels than the limit.
    TooManyLabels,
    /// A label name is longer than the limit.
    LabelNameTooLong,
    /// A label value is longer than the limit.
    LabelValueTooLong,
    /// A native histogram is inconsistent, for example in its spans.
    Histogram,
    /// The number of label references is odd, or one is not in the symbol table.
    LabelRefs,
    /// A reference of the metadata is not in the symbol table.
    MetadataRefs,
    /// A series of remote write 2.0 has no sample.
    NoSamples,
    /// An OTLP metric has no data or an unknown kind of data.
    MetricType,
    /// The aggregation temporality of an OTLP metric is not supported.
    Temporality,
    /// A delta point is not newer than the accumulated value.
    DeltaOutOfOrder,
    /// A delta point has an older start time than the accumulated value.
    DeltaOlderStart,
    /// The limit of accumulated delta streams is reached.
    DeltaLimit,
}

/// The series that were rejected for one reason, with the first of them as an example. The receiver
/// reports it to the sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedSeries {
    /// The reason for the rejection.
    pub refusal: WriteRejectionReason,
    /// Number of series that lost all their samples, or some in the case of histograms.
    pub series_count: usize,
    /// Number of lost samples, or of lost exemplars.
    pub sample_count: usize,
    /// Error text of the first one, in the wording of Prometheus where that has one.
    pub first: String,
}

/// All rejections of a request, one entry for each reason, in order of their first occurrence in
/// the request. Bounded by the number of reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteRejections(Vec<WriteRejectionEntry>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct WriteRejectionEntry {
    /// Offset of the first occurrence in the message.
    at: usize,
    refused: RejectedSeries,
}

impl WriteRejections {
    /// Counts a rejected series that begins at offset `at` of the message; calls may be in any
    /// order. `message` is called only for the first occurrence of a reason.
    pub(crate) fn add(
        &mut self,
        at: usize,
        refusal: WriteRejectionReason,
        sample_count: usize,
        message: impl FnOnce() -> String,
    ) {
        let known = self.0.iter().position(|e| e.refused.refusal == refusal);
        let mut entry = match known {
            Some(known) => self.0.remove(known),
            None => WriteRejectionEntry {
                at: usize::MAX,
                refused: RejectedSeries {
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

    /// Iterates over the entries, one for each reason.
    pub fn iter(&self) -> impl Iterator<Item = &RejectedSeries> {
        self.0.iter().map(|e| &e.refused)
    }

    /// Returns whether nothing was rejected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
