//! How a chunk lies in bytes, and when one is full.

/// Samples at which a chunk is closed, before the spread. Sealing takes samples out of the head
/// after half an hour, so a series of a 15 s scrape closes none; the count bounds what a query for
/// minutes decodes of series that are scraped more often, or while sealing is behind.
pub(super) const SAMPLES: u16 = 480;

/// Chunks close at `SAMPLES` less up to 127 of these samples, by series: at 353 to 480. Series that
/// were created together so do not close their chunks together.
pub(super) const SAMPLES_SPREAD: u16 = 128;

/// Series that pack together: as many as are sealed together, whose chunks begin together.
pub(super) const NEIGHBOURS: u32 = 512;

/// Bytes after which a chunk is closed whatever it counts: what a reader copies of an open chunk
/// while it holds the shard, some 30 ns. Beside it the 58 bytes around a closed chunk (pointer,
/// counts, header, allocator) are small. A histogram may overshoot it by its own size.
pub(super) const BODY_BYTES: usize = 1_024;

/// Operation of a body: the start timestamp changes by a zigzag varint before the sample that
/// follows.
pub(super) const START: u8 = 0xf8;

/// Operation in the place of a value: the sample is a histogram.
pub(super) const HISTOGRAM: u8 = 0xf1;

/// Bytes of the count of samples.
pub(super) const COUNT_BYTES: usize = 2;

/// Bytes before the body: the count and the time of the last sample.
pub(super) const HEADER_BYTES: usize = COUNT_BYTES + 8;
