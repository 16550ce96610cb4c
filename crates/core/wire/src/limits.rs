//! Limits on the size of messages from other programs.

/// Limits of one message from another program. Each limit is checked before the memory is
/// allocated, so that no sender can exhaust it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireLimits {
    /// Largest compressed body in bytes.
    pub body_bytes_max: usize,
    /// Largest message in bytes after decompression, checked before the message is allocated.
    pub message_bytes_max: usize,
    /// Largest memory in bytes for the decoded samples and label sets of one message.
    pub batch_bytes_max: usize,
    /// Largest number of series in one message.
    pub series_count_max: usize,
    /// Largest number of labels of one series, including the metric name.
    pub label_count_max: usize,
    /// Largest length of a label name in bytes.
    pub label_name_bytes_max: usize,
    /// Largest length of a label value in bytes.
    pub label_value_bytes_max: usize,
}

impl Default for WireLimits {
    fn default() -> Self {
        const MIB: usize = 1 << 20;
        Self {
            // Snappy expands a message by at most one sixth, so that a body as large as the largest
            // message is already larger than any valid one needs.
            body_bytes_max: 32 * MIB,
            // The limit of Prometheus. A request of 2,000 samples, its default, takes 0.6 MiB.
            message_bytes_max: 32 * MIB,
            // A float sample takes 18 bytes in a message and 16 here, a label set less than in the
            // message, a sparse histogram up to three times as much. A factor of four accepts every
            // real message and rejects those made of empty parts, which would take a hundred times
            // their size.
            batch_bytes_max: 128 * MIB,
            // A series with a metric name of ten bytes and one sample takes 40 bytes, so that half
            // a million of them fill more than half of the largest message.
            series_count_max: 500_000,
            // Four times the 30 of Mimir: Prometheus has no limit, and a migration must not lose
            // series.
            label_count_max: 128,
            // The limit of Mimir. The longest name that Kubernetes can derive from an annotation is
            // 330 bytes.
            label_name_bytes_max: 1024,
            // Eight times the 2,048 of Mimir: command lines and queries end up in labels, and up to
            // this size only the sender bears the cost.
            label_value_bytes_max: 16 << 10,
        }
    }
}
