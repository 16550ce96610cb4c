//! Decodes an append frame into a batch.

use crate::bytes::{MalformedFrame, PeerFrameReader};
use crate::frames::histogram::read_histogram;
use firn_model::batch::{Batch, HistogramSample};
use firn_model::exemplar::TimedExemplar;
use firn_model::fingerprint::{Fingerprint, HashKeys};
use firn_model::labels::{LabelsRef, is_canonical};
use firn_model::store::{AppendBounds, LateSamplePolicy};
use firn_model::tenant::TenantId;
use firn_wire::remote_write::KEY_FORMAT;

/// The bytes whose fingerprint shows that two nodes have the same hash keys.
pub(super) const HASH_CHECK: &[u8] = b"firn peer";

pub(super) const LATE: [LateSamplePolicy; 4] = [
    LateSamplePolicy::All,
    LateSamplePolicy::AllButStale,
    LateSamplePolicy::Nothing,
    LateSamplePolicy::OfAnyAge,
];

fn read_bounds(reader: &mut PeerFrameReader<'_>) -> Result<AppendBounds, MalformedFrame> {
    let time_max = reader.zigzag()?;
    let late = LATE.get(usize::from(reader.u8()?)).copied();
    Ok(AppendBounds {
        time_max,
        late: late.ok_or(MalformedFrame("unknown policy for late samples"))?,
        in_order_min: reader.zigzag()?,
        newest: reader.option(PeerFrameReader::zigzag)?,
    })
}

/// The parts of an append frame that are not in its batch.
#[derive(Clone, Debug)]
pub struct AppendFrame {
    /// The partition to which all series belong.
    pub partition: u32,
    /// The tenant that owns the samples.
    pub tenant: TenantId,
    /// The time limits of the batch.
    pub bounds: AppendBounds,
    /// The fingerprint of the key of each series, under the hash keys of the sender.
    pub prints: Vec<Fingerprint>,
    hash_check: Fingerprint,
}

impl AppendFrame {
    /// Returns whether the fingerprints are those under `keys`.
    pub fn has_hash_keys(&self, keys: &HashKeys) -> bool {
        keys.fingerprint(HASH_CHECK) == self.hash_check
    }
}

/// Decodes a part of a batch. The series in `batch`, which is cleared before, have undecoded labels
/// with keys of the format of remote write. After an error, `batch` must be cleared.
///
/// # Errors
///
/// [`MalformedFrame`] if `bytes` are not exactly one frame. The content of keys is not checked.
pub fn decode_append(bytes: &[u8], batch: &mut Batch) -> Result<AppendFrame, MalformedFrame> {
    batch.clear();
    if u32::try_from(bytes.len()).is_err() {
        return Err(MalformedFrame("4 GiB or more"));
    }
    let mut reader = PeerFrameReader::new(bytes);
    let partition = reader.u32()?;
    let tenant = TenantId::new(reader.text()?);
    let tenant = tenant.map_err(|_| MalformedFrame("invalid tenant id"))?;
    let bounds = read_bounds(&mut reader)?;
    let hash_check = read_print(&reader.array()?);
    let count = reader.count(KEY_BYTES_MIN)?;
    let ends = read_key_ends(&mut reader, count)?;
    let keys = reader.bytes(ends.last().copied().unwrap_or(0))?;
    let prints = read_prints(&mut reader, count)?;
    let columns = AppendColumns::read(&mut reader, count)?;
    reader.finish()?;
    let mut message = batch.take_message();
    message.clear();
    message.extend_from_slice(keys);
    columns.fill(batch, &ends);
    batch.put_message(message, KEY_FORMAT);
    Ok(AppendFrame {
        partition,
        tenant,
        bounds,
        prints,
        hash_check,
    })
}

/// Bytes of the length of a key, its fingerprint and the number of its floats.
const KEY_BYTES_MIN: usize = 1 + 16 + 1;

fn read_key_ends(
    reader: &mut PeerFrameReader<'_>,
    count: usize,
) -> Result<Vec<usize>, MalformedFrame> {
    let mut ends = Vec::with_capacity(count);
    let mut end = 0usize;
    for _ in 0..count {
        let length = reader.usize()?;
        end = end
            .checked_add(length)
            .ok_or(MalformedFrame("keys out of range"))?;
        ends.push(end);
    }
    Ok(ends)
}

fn read_prints(
    reader: &mut PeerFrameReader<'_>,
    count: usize,
) -> Result<Vec<Fingerprint>, MalformedFrame> {
    let prints = reader.bytes(16 * count)?.as_chunks().0;
    Ok(prints.iter().map(read_print).collect())
}

fn read_print(bytes: &[u8; 16]) -> Fingerprint {
    let both = u128::from_le_bytes(*bytes);
    Fingerprint {
        high: both as u64,
        low: (both >> 64) as u64,
    }
}

/// The columns of a frame. Values and exemplars borrow from its bytes.
struct AppendColumns<'a> {
    float_counts: Vec<u32>,
    pub(super) times: Vec<i64>,
    pub(super) values: &'a [[u8; 8]],
    pub(super) start_times: Vec<i64>,
    /// Histograms with the indexes of their series, which ascend.
    pub(super) histograms: Vec<(u32, HistogramSample)>,
    /// Exemplars with the indexes of their series, which ascend.
    pub(super) exemplars: Vec<(u32, TimedExemplar<'a>)>,
}

impl<'a> AppendColumns<'a> {
    fn read(reader: &mut PeerFrameReader<'a>, count: usize) -> Result<Self, MalformedFrame> {
        let mut float_counts = Vec::with_capacity(count);
        let mut floats = 0usize;
        for _ in 0..count {
            let of_series = reader.u32()?;
            float_counts.push(of_series);
            floats = floats.saturating_add(of_series as usize);
        }
        let times = read_differences(reader, floats)?;
        let value_bytes = floats.checked_mul(8);
        let value_bytes = value_bytes.ok_or(MalformedFrame("samples out of range"))?;
        let values = reader.bytes(value_bytes)?.as_chunks().0;
        let start_times = if reader.bool()? {
            read_differences(reader, floats)?
        } else {
            Vec::new()
        };
        Ok(Self {
            float_counts,
            times,
            values,
            start_times,
            histograms: read_histograms(reader, count)?,
            exemplars: read_exemplars(reader, count)?,
        })
    }

    /// Adds a series for each key to `batch`.
    fn fill(self, batch: &mut Batch, ends: &[usize]) {
        let mut histograms = self.histograms.into_iter().peekable();
        let mut exemplars = self.exemplars.into_iter().peekable();
        let (mut key_start, mut float) = (0, 0);
        for (index, (end, count)) in ends.iter().zip(self.float_counts).enumerate() {
            let key = key_start..*end;
            key_start = *end;
            for _ in 0..count {
                let value = f64::from_bits(u64::from_le_bytes(self.values[float]));
                match self.start_times.get(float) {
                    Some(start) => batch.push_float_with_start(self.times[float], value, *start),
                    None => batch.push_float(self.times[float], value),
                }
                float += 1;
            }
            let index = index as u32;
            while let Some((_, sample)) = histograms.next_if(|(series, _)| *series == index) {
                batch.push_histogram(sample);
            }
            while let Some((_, exemplar)) = exemplars.next_if(|(series, _)| *series == index) {
                batch.push_exemplar(exemplar);
            }
            batch.end_unread_series(key);
        }
    }
}

/// Reads integers that are encoded as differences from their predecessors.
fn read_differences(
    reader: &mut PeerFrameReader<'_>,
    count: usize,
) -> Result<Vec<i64>, MalformedFrame> {
    if count > reader.rest().len() {
        return Err(MalformedFrame("count beyond its bytes"));
    }
    let mut numbers = Vec::with_capacity(count);
    let mut previous = 0i64;
    for _ in 0..count {
        previous = previous.wrapping_add(reader.zigzag()?);
        numbers.push(previous);
    }
    Ok(numbers)
}

/// Reads the index of a series that is below `count` and not below `previous`.
fn read_index(
    reader: &mut PeerFrameReader<'_>,
    previous: u32,
    count: usize,
) -> Result<u32, MalformedFrame> {
    let index = reader.u32()?;
    if index < previous || index as usize >= count {
        return Err(MalformedFrame("indexes of series are out of order"));
    }
    Ok(index)
}

/// Bytes of the shortest histogram and its times.
const HISTOGRAM_BYTES_MIN: usize = 29;

fn read_histograms(
    reader: &mut PeerFrameReader<'_>,
    series: usize,
) -> Result<Vec<(u32, HistogramSample)>, MalformedFrame> {
    let count = reader.count(HISTOGRAM_BYTES_MIN)?;
    let mut histograms = Vec::with_capacity(count);
    let mut index = 0;
    for _ in 0..count {
        index = read_index(reader, index, series)?;
        let sample = HistogramSample {
            time: reader.zigzag()?,
            start_time: reader.zigzag()?,
            histogram: read_histogram(reader)?,
        };
        histograms.push((index, sample));
    }
    Ok(histograms)
}

/// Bytes of an exemplar without labels.
const EXEMPLAR_BYTES_MIN: usize = 12;

fn read_exemplars<'a>(
    reader: &mut PeerFrameReader<'a>,
    series: usize,
) -> Result<Vec<(u32, TimedExemplar<'a>)>, MalformedFrame> {
    let count = reader.count(EXEMPLAR_BYTES_MIN)?;
    let mut exemplars = Vec::with_capacity(count);
    let mut index = 0;
    for _ in 0..count {
        index = read_index(reader, index, series)?;
        let has_own_time = reader.bool()?;
        let exemplar = TimedExemplar {
            has_own_time,
            time: reader.zigzag()?,
            value: reader.f64()?,
            labels: read_labels(reader)?,
        };
        exemplars.push((index, exemplar));
    }
    Ok(exemplars)
}

/// Reads a label set in canonical form.
pub(crate) fn read_labels<'a>(
    reader: &mut PeerFrameReader<'a>,
) -> Result<LabelsRef<'a>, MalformedFrame> {
    let bytes = reader.prefixed()?;
    if !is_canonical(bytes) {
        return Err(MalformedFrame("labels are not canonical"));
    }
    Ok(LabelsRef::from_canonical(bytes))
}
