//! The bounds of a page, which builder and reader share.

/// Samples of a column at most: a day and a half of one-second scrapes, a megabyte when decoded.
pub const SAMPLES_MAX: usize = 1 << 17;

/// Buckets, spans and custom bounds of all histograms of a column at most: 700 of a day at 15 s,
/// and 32 MiB when decoded.
pub const HISTOGRAM_NUMBERS_MAX: usize = 1 << 22;

/// Series in a page at most.
pub const COLUMNS_MAX: usize = 1 << 20;

/// Bytes after which a stripe ends: what is read and checked for the sake of one column.
pub(super) const STRIPE_BYTES: usize = 64 << 10;
