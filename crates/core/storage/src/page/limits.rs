//! The limits of a page, shared by builder and reader.

/// Maximum number of samples of a column: a day and a half of scrapes at one second, a megabyte
/// when decoded.
pub const SAMPLES_MAX: usize = 1 << 17;

/// Maximum number of buckets, spans and custom bounds of all histograms of a column: 700 per
/// histogram for a day at 15 s, and 32 MiB when decoded.
pub const HISTOGRAM_NUMBERS_MAX: usize = 1 << 22;

/// Maximum number of series in a page.
pub const COLUMNS_MAX: usize = 1 << 20;

/// Size at which a stripe ends, in bytes: the amount that is read and verified for access to one
/// column.
pub(super) const STRIPE_BYTES: usize = 64 << 10;
