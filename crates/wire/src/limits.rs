//! How much a sender may ask for.

/// Caps on what is read from outside; each is checked before memory is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireLimits {
    /// Bytes of a body as it travels.
    pub body_bytes_max: usize,
    /// Bytes of a message once it is unpacked.
    pub message_bytes_max: usize,
    /// Bytes of memory that the samples and label sets of one message may take.
    pub batch_bytes_max: usize,
    /// Series in one message.
    pub series_count_max: usize,
    /// Labels of one series, the metric's name included.
    pub label_count_max: usize,
    /// Bytes of a label's name.
    pub label_name_bytes_max: usize,
    /// Bytes of a label's value.
    pub label_value_bytes_max: usize,
}

impl Default for WireLimits {
    fn default() -> Self {
        const MIB: usize = 1 << 20;
        Self {
            // Snappy never makes more of a message than 7/6 of it, so a body as large as the
            // largest message is larger than any honest one.
            body_bytes_max: 32 * MIB,
            // Prometheus's cap. A request of 2,000 samples, its default, takes 0.6 MiB.
            message_bytes_max: 32 * MIB,
            // A float sample takes 18 bytes in a message and 16 here, a label set less than in the
            // message, a sparse histogram up to three times as much. Four times keeps every honest
            // message and stops those made of empty parts, which take a hundred times as much.
            batch_bytes_max: 128 * MIB,
            // A series with a metric's name of ten bytes and one sample takes 40 bytes, so half a
            // million of them fill more than half of the largest message.
            series_count_max: 500_000,
            // Four times Mimir's 30: Prometheus has no limit, and a migration must not lose series.
            label_count_max: 128,
            // Mimir's. The longest name that Kubernetes can produce from an annotation is 330
            // bytes.
            label_name_bytes_max: 1024,
            // Eight times Mimir's 2,048: command lines and queries end up in labels, and up to here
            // only the sender pays for them.
            label_value_bytes_max: 16 << 10,
        }
    }
}
