//! Reads the samples of a chunk in any encoding.

use super::bits::BitReader;
use super::encoding::{Encoding, ResetHeader};
use super::floats::FloatReader;
use super::histograms::{COUNT_MASK_WITH_STARTS, HistogramReader};
use super::start::StartReader;
use crate::tsdb::error::Malformed;
use crate::tsdb::sample::{Sample, Value};
use std::borrow::Cow;

/// Iterator over the samples of a chunk in stored order; ends after the first error or the stored
/// number of samples.
#[derive(Clone, Debug)]
pub struct Samples<'c> {
    count: u16,
    left: u16,
    reset_header: ResetHeader,
    reader: Reader<'c>,
}

#[derive(Clone, Debug)]
enum Reader<'c> {
    Floats(Box<FloatReader<'c>>),
    Histograms(Box<HistogramReader<'c>>),
}

impl<'c> Samples<'c> {
    /// Returns the samples of the chunk `data`, borrowed or owned. Fails if the header is
    /// incomplete.
    pub fn new(encoding: Encoding, data: impl Into<Cow<'c, [u8]>>) -> Result<Self, Malformed> {
        let data = data.into();
        let count = data.first_chunk::<2>().ok_or(Malformed::CutShort)?;
        let count = u16::from_be_bytes(*count);
        let third = data.get(2).copied().ok_or(Malformed::CutShort);
        let mut reset_header = ResetHeader::Unknown;
        let (left, reader) = match encoding {
            Encoding::Xor => {
                let reader = FloatReader::xor(BitReader::new(data, 2));
                (count, Reader::Floats(Box::new(reader)))
            }
            Encoding::Xor2 => {
                let reader = FloatReader::xor2(third?, BitReader::new(data, 3));
                (count, Reader::Floats(Box::new(reader)))
            }
            Encoding::Histogram | Encoding::FloatHistogram => {
                reset_header = ResetHeader::of_byte(third?);
                let is_float = encoding == Encoding::FloatHistogram;
                let bits = BitReader::new(data, 3);
                let reader = HistogramReader::new(bits, reset_header, is_float, None);
                (count, Reader::Histograms(Box::new(reader)))
            }
            Encoding::HistogramStart | Encoding::FloatHistogramStart => {
                let starts = Some(StartReader::new(third?));
                reset_header = ResetHeader::of_byte((count >> 8) as u8);
                let is_float = encoding == Encoding::FloatHistogramStart;
                let bits = BitReader::new(data, 3);
                let reader = HistogramReader::new(bits, reset_header, is_float, starts);
                (
                    count & COUNT_MASK_WITH_STARTS,
                    Reader::Histograms(Box::new(reader)),
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
    pub fn left(&self) -> u16 {
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

impl Iterator for Samples<'_> {
    type Item = Result<Sample, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let read = match &mut self.reader {
            Reader::Floats(reader) => reader.read().map(|sample| Sample {
                time: sample.time,
                start_time: sample.start_time,
                value: Value::Float(sample.value),
            }),
            Reader::Histograms(reader) => {
                reader.read().map(|(time, start_time, histogram)| Sample {
                    time,
                    start_time,
                    value: Value::Histogram(Box::new(histogram)),
                })
            }
        };
        if read.is_err() {
            self.left = 0;
        }
        Some(read)
    }
}
