//! The layout that the histograms of a chunk share: schema, zero threshold, spans, custom bounds
//! (`tsdb/chunkenc/histogram_meta.go`).

use super::bits::{XorBitReader, XorBitWriter};
use crate::error::MalformedTsdbBytes;
use firn_model::histogram::{BucketSpan, CUSTOM_BUCKETS_SCHEMA, EXPONENTIAL_SCHEMA_MAX, Histogram};

/// Largest number of buckets and of spans of one sign: twice the number that the finest current
/// schema has between the smallest and the largest float (256 for each of 2,098 powers of two).
pub(crate) const BUCKETS_MAX: u64 = 1 << 20;

/// The valid exponential schemas, including reserved ones.
const SCHEMAS: std::ops::RangeInclusive<i32> = -9..=52;

/// The exponent that a zero threshold of byte 1 encodes, minus one.
const THRESHOLD_EXPONENT_BASE: i32 = -244;

/// Largest custom bound, in thousandths, that is written as an integer.
const BOUND_THOUSANDTHS_MAX: f64 = 33_554_430.0;

/// The properties that the histograms of a chunk share, stored once before the samples.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HistogramChunkLayout {
    pub schema: i32,
    pub zero_threshold: f64,
    pub positive_spans: Vec<BucketSpan>,
    pub negative_spans: Vec<BucketSpan>,
    pub custom_values: Vec<f64>,
}

/// Returns whether histograms of this schema can be decoded. Schemas that are too fine are reduced
/// afterwards.
pub(crate) fn is_known_schema(schema: i32) -> bool {
    schema == CUSTOM_BUCKETS_SCHEMA || SCHEMAS.contains(&schema)
}

/// Returns the number of buckets in the spans; fails above [`BUCKETS_MAX`].
pub(crate) fn bucket_count(spans: &[BucketSpan]) -> Result<usize, MalformedTsdbBytes> {
    let count: u64 = spans.iter().map(|span| u64::from(span.length)).sum();
    if count <= BUCKETS_MAX {
        Ok(count as usize)
    } else {
        Err(MalformedTsdbBytes::Invalid(
            "a histogram has too many buckets",
        ))
    }
}

impl HistogramChunkLayout {
    pub fn read(bits: &mut XorBitReader<'_>) -> Result<Self, MalformedTsdbBytes> {
        let zero_threshold = read_threshold(bits)?;
        let schema = bits.read_varbit()? as i32;
        if !is_known_schema(schema) {
            return Err(MalformedTsdbBytes::Invalid(
                "a histogram has an unknown schema",
            ));
        }
        let positive_spans = read_spans(bits)?;
        let negative_spans = read_spans(bits)?;
        let custom_values = if schema == CUSTOM_BUCKETS_SCHEMA {
            read_bounds(bits)?
        } else {
            Vec::new()
        };
        Ok(Self {
            schema,
            zero_threshold,
            positive_spans,
            negative_spans,
            custom_values,
        })
    }

    pub fn write(&self, out: &mut XorBitWriter) {
        write_threshold(out, self.zero_threshold);
        out.write_varbit(i64::from(self.schema));
        for spans in [&self.positive_spans, &self.negative_spans] {
            out.write_uvarbit(spans.len() as u64);
            for span in spans {
                out.write_uvarbit(u64::from(span.length));
                out.write_varbit(i64::from(span.offset));
            }
        }
        if self.schema == CUSTOM_BUCKETS_SCHEMA {
            out.write_uvarbit(self.custom_values.len() as u64);
            for bound in &self.custom_values {
                write_bound(out, *bound);
            }
        }
    }
}

/// Reads a number of elements that take at least `bits_min` bits each; fails if the chunk cannot
/// contain them.
fn read_count(bits: &mut XorBitReader<'_>, bits_min: u64) -> Result<usize, MalformedTsdbBytes> {
    let count = bits.read_uvarbit()?;
    if count <= BUCKETS_MAX && count * bits_min <= bits.remaining() {
        Ok(count as usize)
    } else {
        Err(MalformedTsdbBytes::CutShort)
    }
}

fn read_spans(bits: &mut XorBitReader<'_>) -> Result<Vec<BucketSpan>, MalformedTsdbBytes> {
    let count = read_count(bits, 2)?;
    let mut spans = Vec::with_capacity(count);
    for _ in 0..count {
        let length = bits.read_uvarbit()? as u32;
        let offset = bits.read_varbit()? as i32;
        spans.push(BucketSpan { offset, length });
    }
    Ok(spans)
}

fn read_bounds(bits: &mut XorBitReader<'_>) -> Result<Vec<f64>, MalformedTsdbBytes> {
    let count = read_count(bits, 5)?;
    let mut bounds = Vec::with_capacity(count);
    for _ in 0..count {
        bounds.push(match bits.read_uvarbit()? {
            0 => f64::from_bits(bits.read_bits(64)?),
            thousandths => (thousandths - 1) as f64 / 1000.0,
        });
    }
    Ok(bounds)
}

fn write_bound(out: &mut XorBitWriter, bound: f64) {
    let thousandths = (bound * 1000.0).round();
    let is_exact = (thousandths / 1000.0).to_bits() == bound.to_bits();
    if is_exact && bound.is_sign_positive() && thousandths <= BOUND_THOUSANDTHS_MAX {
        out.write_uvarbit(thousandths as u64 + 1);
    } else {
        out.write_bit(false);
        out.write_bits(bound.to_bits(), 64);
    }
}

/// Reads a zero threshold: one byte for a power of two, or 255 and the bits of any other number.
fn read_threshold(bits: &mut XorBitReader<'_>) -> Result<f64, MalformedTsdbBytes> {
    Ok(match bits.read_bits(8)? {
        0 => 0.0,
        255 => f64::from_bits(bits.read_bits(64)?),
        byte => 2f64.powi(byte as i32 + THRESHOLD_EXPONENT_BASE),
    })
}

fn write_threshold(out: &mut XorBitWriter, threshold: f64) {
    let byte = (1..255).find(|byte| {
        let power = 2f64.powi(byte + THRESHOLD_EXPONENT_BASE);
        power.to_bits() == threshold.to_bits()
    });
    match byte {
        _ if threshold.to_bits() == 0 => out.write_bits(0, 8),
        Some(byte) => out.write_bits(byte as u64, 8),
        None => {
            out.write_bits(255, 8);
            out.write_bits(threshold.to_bits(), 64);
        }
    }
}

/// Reduces a histogram to the finest supported schema if it is finer, because newer versions may
/// write such histograms.
pub(crate) fn reduce_resolution(histogram: &mut Histogram) -> Result<(), MalformedTsdbBytes> {
    histogram.reduce_to(EXPONENTIAL_SCHEMA_MAX).map_err(|_| {
        MalformedTsdbBytes::Invalid("spans of a histogram are out of order or too far apart")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_of_any_numbers_reads_as_it_was() {
        let thresholds = [
            0.0,
            -0.0,
            2f64.powi(-128),
            2f64.powi(-243),
            1024.0,
            2048.0,
            1e-3,
        ];
        for zero_threshold in thresholds {
            let layout = HistogramChunkLayout {
                schema: CUSTOM_BUCKETS_SCHEMA,
                zero_threshold,
                positive_spans: vec![
                    BucketSpan {
                        offset: -3,
                        length: 2,
                    },
                    BucketSpan {
                        offset: 7,
                        length: 0,
                    },
                ],
                negative_spans: Vec::new(),
                custom_values: vec![-1.0, -0.0, 0.0, 0.005, 0.1, 33_554.43, 33_554.431, 1e300],
            };
            let mut out = XorBitWriter::default();
            layout.write(&mut out);
            let read = HistogramChunkLayout::read(&mut XorBitReader::new(out.bytes().into(), 0));
            assert_eq!(format!("{read:?}"), format!("{:?}", Ok::<_, ()>(layout)));
        }
    }

    #[test]
    fn layout_with_more_than_its_bytes_can_hold_is_refused() {
        let mut out = XorBitWriter::default();
        out.write_bits(0, 8);
        out.write_varbit(3);
        out.write_uvarbit(BUCKETS_MAX);
        let read = HistogramChunkLayout::read(&mut XorBitReader::new(out.bytes().into(), 0));
        assert_eq!(read, Err(MalformedTsdbBytes::CutShort));
        let wide = [BucketSpan {
            offset: 0,
            length: u32::MAX,
        }];
        assert!(bucket_count(&wide).is_err());
    }
}
