//! The encodings of chunks and their numbers in the files (`tsdb/chunkenc/chunk.go`).

/// The encoding of the samples in a chunk, which determines their kind and whether they have start
/// timestamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TsdbChunkEncoding {
    /// Floats without start timestamps.
    Xor,
    /// Histograms with integer counts, without start timestamps.
    Histogram,
    /// Histograms with float counts, without start timestamps.
    FloatHistogram,
    /// Floats with optional start timestamps.
    Xor2,
    /// Histograms with integer counts and start timestamps.
    HistogramStart,
    /// Histograms with float counts and start timestamps.
    FloatHistogramStart,
}

impl TsdbChunkEncoding {
    /// Returns the encoding with this number, if it exists.
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => TsdbChunkEncoding::Xor,
            2 => TsdbChunkEncoding::Histogram,
            3 => TsdbChunkEncoding::FloatHistogram,
            4 => TsdbChunkEncoding::Xor2,
            5 => TsdbChunkEncoding::HistogramStart,
            6 => TsdbChunkEncoding::FloatHistogramStart,
            _ => return None,
        })
    }

    /// Returns the number of the encoding in the files.
    pub const fn number(self) -> u8 {
        match self {
            TsdbChunkEncoding::Xor => 1,
            TsdbChunkEncoding::Histogram => 2,
            TsdbChunkEncoding::FloatHistogram => 3,
            TsdbChunkEncoding::Xor2 => 4,
            TsdbChunkEncoding::HistogramStart => 5,
            TsdbChunkEncoding::FloatHistogramStart => 6,
        }
    }

    /// Returns the kind of the samples.
    pub const fn kind(self) -> TsdbSampleKind {
        match self {
            TsdbChunkEncoding::Xor | TsdbChunkEncoding::Xor2 => TsdbSampleKind::Float,
            TsdbChunkEncoding::Histogram | TsdbChunkEncoding::HistogramStart => {
                TsdbSampleKind::Histogram
            }
            TsdbChunkEncoding::FloatHistogram | TsdbChunkEncoding::FloatHistogramStart => {
                TsdbSampleKind::FloatHistogram
            }
        }
    }
}

/// The kind of the samples in a chunk, which is the same for all of them. A series can have chunks
/// of several kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TsdbSampleKind {
    /// Floats, including staleness markers.
    Float,
    /// Histograms with integer counts, as client libraries expose them.
    Histogram,
    /// Histograms with float counts, as recording rules produce them.
    FloatHistogram,
}

/// The reset header of a histogram chunk, which describes its first sample. Readers derive reset
/// hints from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetHeader {
    /// A reset before the chunk is neither known nor excluded.
    #[default]
    Unknown,
    /// The counter was not reset before the chunk.
    NotReset,
    /// The counter was reset before the chunk.
    Reset,
    /// All samples are gauges, which have no resets.
    Gauge,
}

impl ResetHeader {
    /// Decodes the header from the two highest bits of a byte.
    pub(super) const fn from_byte(byte: u8) -> Self {
        match byte >> 6 {
            0 => ResetHeader::Unknown,
            1 => ResetHeader::NotReset,
            2 => ResetHeader::Reset,
            _ => ResetHeader::Gauge,
        }
    }

    /// Encodes the header in the two highest bits of a byte.
    pub(super) const fn to_byte(self) -> u8 {
        match self {
            ResetHeader::Unknown => 0,
            ResetHeader::NotReset => 0x40,
            ResetHeader::Reset => 0x80,
            ResetHeader::Gauge => 0xc0,
        }
    }
}
