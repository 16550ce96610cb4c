//! Histogram chunks: a layout that all histograms share, then timestamps, counts and sums
//! (`tsdb/chunkenc/histogram.go`, `float_histogram.go`, `histogram_st.go`).
//!
//! ```text
//! plain        samples u16 | reset header in the two highest bits of a byte | layout | { sample }*
//! with starts  reset header 2 bits, samples 14 bits | starts u8 | layout | { sample, start }*
//! ```

use super::bits::{XorBitReader, XorBitWriter};
use super::counts::HistogramCountsState;
use super::encoding::ResetHeader;
use super::layout::{HistogramChunkLayout, bucket_count, reduce_resolution};
use super::start::{StartTimeReader, StartTimeWriter};
use crate::error::MalformedTsdbBytes;
use crate::sample::stale_histogram;
use firn_model::histogram::{Histogram, ResetHint};
use firn_model::sample::{START_UNKNOWN, TimestampMs, is_stale};

/// Size of the header before the layout in bytes.
const HEADER_BYTES: usize = 3;

/// Mask of the number of samples, which shares its bytes with the reset header.
pub(super) const COUNT_MASK_WITH_STARTS: u16 = 0x3fff;

/// Reads the histograms after the header of a chunk, one at a time.
#[derive(Clone, Debug)]
pub(super) struct HistogramChunkReader<'c> {
    bits: XorBitReader<'c>,
    header: ResetHeader,
    is_float: bool,
    layout: HistogramChunkLayout,
    starts: Option<StartTimeReader>,
    index: u16,
    time: TimestampMs,
    delta: i64,
    counts: HistogramCountsState,
}

impl<'c> HistogramChunkReader<'c> {
    /// Returns a reader of the bits after a header, which describes `header`, count type and start
    /// timestamps.
    pub fn new(
        bits: XorBitReader<'c>,
        header: ResetHeader,
        is_float: bool,
        starts: Option<StartTimeReader>,
    ) -> Self {
        Self {
            bits,
            header,
            is_float,
            layout: HistogramChunkLayout::default(),
            starts,
            index: 0,
            time: 0,
            delta: 0,
            counts: HistogramCountsState::new(is_float),
        }
    }

    /// Reads the next histogram with timestamp and start timestamp; the caller keeps track of the
    /// number of samples.
    pub fn read(&mut self) -> Result<(TimestampMs, TimestampMs, Histogram), MalformedTsdbBytes> {
        let before = self.time;
        if self.index == 0 {
            self.layout = HistogramChunkLayout::read(&mut self.bits)?;
            let positives = bucket_count(&self.layout.positive_spans)?;
            let negatives = bucket_count(&self.layout.negative_spans)?;
            self.time = self.bits.read_varbit()?;
            self.counts
                .read_first(&mut self.bits, positives, negatives)?;
        } else {
            self.delta = self.delta.wrapping_add(self.bits.read_varbit()?);
            self.time = self.time.wrapping_add(self.delta);
            self.counts.read_next(&mut self.bits)?;
        }
        let start = match &mut self.starts {
            Some(starts) => starts.read(&mut self.bits, self.index, self.time, before)?,
            None => START_UNKNOWN,
        };
        let histogram = self.histogram()?;
        self.index = self.index.saturating_add(1);
        Ok((self.time, start, histogram))
    }

    fn histogram(&self) -> Result<Histogram, MalformedTsdbBytes> {
        let sum = self.counts.sum();
        if is_stale(sum) {
            return Ok(stale_histogram(sum, self.is_float));
        }
        let mut histogram = Histogram {
            // Upstream gives no hint for the first sample either, because the previous chunk may be
            // deleted.
            reset_hint: match (self.header, self.index) {
                (ResetHeader::Gauge, _) => ResetHint::Gauge,
                (_, 0) => ResetHint::Unknown,
                _ => ResetHint::NotReset,
            },
            schema: self.layout.schema,
            zero_threshold: self.layout.zero_threshold,
            sum,
            counts: self.counts.counts(),
            positive_spans: self.layout.positive_spans.clone(),
            negative_spans: self.layout.negative_spans.clone(),
            custom_values: self.layout.custom_values.clone(),
        };
        reduce_resolution(&mut histogram)?;
        Ok(histogram)
    }
}

/// Encodes a chunk of histograms of one kind. All except staleness markers must have the buckets of
/// `layout`; timestamps must increase, and there must be between 1 and 16,383 samples.
pub(super) fn write(
    layout: &HistogramChunkLayout,
    header: ResetHeader,
    has_starts: bool,
    samples: impl Iterator<Item = (TimestampMs, TimestampMs, Histogram)>,
) -> Vec<u8> {
    let mut out = XorBitWriter::with_header(&[0; HEADER_BYTES]);
    layout.write(&mut out);
    let mut starts = StartTimeWriter::default();
    let mut counts = HistogramCountsState::new(false);
    let (mut count, mut time, mut delta) = (0u16, 0i64, 0i64);
    for (new_time, start, histogram) in samples {
        let before = time;
        if count == 0 {
            out.write_varbit(new_time);
            counts.write_first(&mut out, histogram.sum, &histogram.counts);
        } else {
            let new_delta = new_time.wrapping_sub(time);
            out.write_varbit(new_delta.wrapping_sub(delta));
            delta = new_delta;
            if histogram.is_stale() {
                counts.write_stale(&mut out, histogram.sum)
            } else {
                counts.write_next(&mut out, histogram.sum, &histogram.counts)
            }
        }
        time = new_time;
        if has_starts {
            starts.write(&mut out, count, start, new_time, before);
        }
        count += 1;
    }
    let [high, low] = count.to_be_bytes();
    let head = if has_starts {
        [high | header.to_byte(), low, starts.header()]
    } else {
        [high, low, header.to_byte()]
    };
    if let Some(bytes) = out.bytes_mut().get_mut(..HEADER_BYTES) {
        bytes.copy_from_slice(&head);
    }
    out.bytes().to_vec()
}
