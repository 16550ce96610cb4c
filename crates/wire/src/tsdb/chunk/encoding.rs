//! What a chunk's bytes are, by the number in front of them (`tsdb/chunkenc/chunk.go`).

/// How the samples of a chunk are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Encoding {
    /// Floats.
    Xor,
    /// Histograms of integers.
    Histogram,
    /// Histograms of floats.
    FloatHistogram,
    /// Floats, with start timestamps where there are any.
    Xor2,
    /// Histograms of integers, with start timestamps.
    HistogramStart,
    /// Histograms of floats, with start timestamps.
    FloatHistogramStart,
}

impl Encoding {
    /// The encoding with this number, if there is one.
    pub const fn of_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Encoding::Xor,
            2 => Encoding::Histogram,
            3 => Encoding::FloatHistogram,
            4 => Encoding::Xor2,
            5 => Encoding::HistogramStart,
            6 => Encoding::FloatHistogramStart,
            _ => return None,
        })
    }

    /// The number of the encoding.
    pub const fn number(self) -> u8 {
        match self {
            Encoding::Xor => 1,
            Encoding::Histogram => 2,
            Encoding::FloatHistogram => 3,
            Encoding::Xor2 => 4,
            Encoding::HistogramStart => 5,
            Encoding::FloatHistogramStart => 6,
        }
    }

    /// Which samples it holds.
    pub const fn kind(self) -> Kind {
        match self {
            Encoding::Xor | Encoding::Xor2 => Kind::Float,
            Encoding::Histogram | Encoding::HistogramStart => Kind::Histogram,
            Encoding::FloatHistogram | Encoding::FloatHistogramStart => Kind::FloatHistogram,
        }
    }
}

/// Which samples a chunk holds; all of one chunk are of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Floats.
    Float,
    /// Histograms of integers.
    Histogram,
    /// Histograms of floats.
    FloatHistogram,
}

/// What the header of a chunk of histograms says about its first sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetHeader {
    /// Nothing is known.
    #[default]
    Unknown,
    /// The counter was not reset before the chunk.
    NotReset,
    /// The counter was reset before the chunk.
    Reset,
    /// All samples are gauges.
    Gauge,
}

impl ResetHeader {
    /// The header in the two highest bits of a byte.
    pub(super) const fn of_byte(byte: u8) -> Self {
        match byte >> 6 {
            0 => ResetHeader::Unknown,
            1 => ResetHeader::NotReset,
            2 => ResetHeader::Reset,
            _ => ResetHeader::Gauge,
        }
    }

    /// The two highest bits of a byte.
    pub(super) const fn byte(self) -> u8 {
        match self {
            ResetHeader::Unknown => 0,
            ResetHeader::NotReset => 0x40,
            ResetHeader::Reset => 0x80,
            ResetHeader::Gauge => 0xc0,
        }
    }
}
