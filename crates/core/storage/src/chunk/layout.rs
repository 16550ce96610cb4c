//! Layout constants of chunks, and the limits at which a chunk is full.

/// Number of samples at which a chunk is closed, before the spread. Sealing takes samples out of
/// the head after half an hour, so a series with a scrape interval of 15 s closes none. The limit
/// bounds the samples that a query for a few minutes decodes if the series is scraped more often or
/// sealing lags.
pub(super) const SAMPLES: u16 = 480;

/// Chunks close at `SAMPLES` minus up to 127 samples, by series: at 353 to 480. Series that were
/// created together therefore do not close their chunks together.
pub(super) const SAMPLES_SPREAD: u16 = 128;

/// Number of series that pack together: as many as are sealed together, whose chunks begin
/// together.
pub(super) const NEIGHBOURS: u32 = 512;

/// Size of the body in bytes at which a chunk is closed regardless of its samples. A reader copies
/// that much of an open chunk while it holds the shard, which takes about 30 ns. The overhead of 58
/// bytes per closed chunk (pointer, counters, header, allocator) is small in comparison. A
/// histogram may exceed the limit by its own size.
pub(super) const BODY_BYTES: usize = 1_024;

/// Operation of a body: the start timestamp changes by a zigzag varint before the next sample.
pub(super) const START: u8 = 0xf8;

/// Operation in the place of a value: the sample is a histogram.
pub(super) const HISTOGRAM: u8 = 0xf1;

/// Bytes of the number of samples, a little-endian u16 at the start of a chunk.
pub(super) const COUNT_BYTES: usize = 2;

/// Bytes of the header: the number of samples and the time of the last one.
pub(super) const HEADER_BYTES: usize = COUNT_BYTES + 8;
