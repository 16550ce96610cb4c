//! Reads the samples of a chunk in any encoding.

use super::bits::XorBitReader;
use super::encoding::{ResetHeader, TsdbChunkEncoding};
use super::floats::XorChunkReader;
use super::histograms::{COUNT_MASK_WITH_STARTS, HistogramChunkReader};
use super::start::StartTimeReader;
use crate::error::MalformedTsdbBytes;
use crate::sample::{TsdbSample, TsdbSampleValue};
use std::borrow::Cow;

/// Iterator over the samples of a chunk in stored order; ends after the first error or the stored
/// number of samples.
#[derive(Clone, Debug)]
pub struct TsdbChunkSamples<'c> {
    count: u16,
    left: u16,
    reset_header: ResetHeader,
    reader: ChunkSampleReader<'c>,
}

#[derive(Clone, Debug)]
enum ChunkSampleReader<'c> {
    Floats(Box<XorChunkReader<'c>>),
    Histograms(Box<HistogramChunkReader<'c>>),
}

impl<'c> TsdbChunkSamples<'c> {
    /// Returns the samples of the chunk `data`, borrowed or owned. Fails if the header is
    /// incomplete.
    pub fn new(
        encoding: TsdbChunkEncoding,
        data: impl Into<Cow<'c, [u8]>>,
    ) -> Result<Self, MalformedTsdbBytes> {
        let data = data.into();
        let count = data
            .first_chunk::<2>()
            .ok_or(MalformedTsdbBytes::CutShort)?;
        let count = u16::from_be_bytes(*count);
        let third = data.get(2).copied().ok_or(MalformedTsdbBytes::CutShort);
        let mut reset_header = ResetHeader::Unknown;
        let (left, reader) = match encoding {
            TsdbChunkEncoding::Xor => {
                let reader = XorChunkReader::new_xor(XorBitReader::new(data, 2));
                (count, ChunkSampleReader::Floats(Box::new(reader)))
            }
            TsdbChunkEncoding::Xor2 => {
                let reader = XorChunkReader::new_xor2(third?, XorBitReader::new(data, 3));
                (count, ChunkSampleReader::Floats(Box::new(reader)))
            }
            TsdbChunkEncoding::Histogram | TsdbChunkEncoding::FloatHistogram => {
                reset_header = ResetHeader::from_byte(third?);
                let is_float = encoding == TsdbChunkEncoding::FloatHistogram;
                let bits = XorBitReader::new(data, 3);
                let reader = HistogramChunkReader::new(bits, reset_header, is_float, None);
                (count, ChunkSampleReader::Histograms(Box::new(reader)))
            }
            TsdbChunkEncoding::HistogramStart | TsdbChunkEncoding::FloatHistogramStart => {
                let starts = Some(StartTimeReader::new(third?));
                reset_header = ResetHeader::from_byte((count >> 8) as u8);
                let is_float = encoding == TsdbChunkEncoding::FloatHistogramStart;
                let bits = XorBitReader::new(data, 3);
                let reader = HistogramChunkReader::new(bits, reset_header, is_float, starts);
                (
                    count & COUNT_MASK_WITH_STARTS,
                    ChunkSampleReader::Histograms(Box::new(reader)),
                )
            }
        };
        Ok(Self {
            count: left,
            left,
            reset_header,
            reader,
        })
    }

    /// Returns the number of unread samples. The header contains their total number.
    pub fn remaining(&self) -> u16 {
        self.left
    }

    /// Returns whether no sample was read yet.
    pub fn is_at_start(&self) -> bool {
        self.left == self.count
    }

    /// Returns the reset header of the chunk, which describes the first sample.
    pub fn reset_header(&self) -> ResetHeader {
        self.reset_header
    }
}

impl Iterator for TsdbChunkSamples<'_> {
    type Item = Result<TsdbSample, MalformedTsdbBytes>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let read = match &mut self.reader {
            ChunkSampleReader::Floats(reader) => reader.read().map(|sample| TsdbSample {
                time: sample.time,
                start_time: sample.start_time,
                value: TsdbSampleValue::Float(sample.value),
            }),
            ChunkSampleReader::Histograms(reader) => {
                reader
                    .read()
                    .map(|(time, start_time, histogram)| TsdbSample {
                        time,
                        start_time,
                        value: TsdbSampleValue::Histogram(Box::new(histogram)),
                    })
            }
        };
        if read.is_err() {
            self.left = 0;
        }
        Some(read)
    }
}
