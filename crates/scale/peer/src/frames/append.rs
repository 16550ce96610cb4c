//! A part of a batch, which a node forwards to the leader of a partition.
//!
//! ```text
//! partition | tenant | bounds | hash check | series count | key lengths | keys | fingerprints
//! | float counts | times | values | start times? | histograms | exemplars
//! ```
//!
//! Keys have the format of remote write: received ones if they are plain, otherwise those that the
//! format creates from the labels. The receiver finds its series by fingerprints and decodes labels
//! of new series only. Times are differences from the previous sample of the frame, one byte each
//! if series have equal times. [`super::append_parts`] joins the parts for one node.
//!
//! Invariants: a decoded batch is complete. Keys and fingerprints of existing series are not
//! checked again, except fingerprints in debug builds: only peers with the secret of the cluster
//! can connect. The hash check, a fingerprint of a constant, shows that both nodes have the same
//! hash keys.

mod decode;

use crate::bytes::{push_count, push_f64, push_option, push_prefixed, push_varint, push_zigzag};
use crate::frames::histogram::push_histogram;
use bytes::Bytes;
pub(crate) use decode::read_labels;
pub use decode::{AppendFrame, decode_append};
use decode::{HASH_CHECK, LATE};
use firn_model::batch::{Batch, BatchSource};
use firn_model::error::{Error, ErrorKind};
use firn_model::fingerprint::{Fingerprint, SeriesHash};
use firn_model::store::{AppendBounds, AppendOutcome};
use firn_model::tenant::TenantId;
use firn_wire::remote_write::KEY_FORMAT;
use std::sync::Arc;

/// Bytes of a series with one float sample, without its key: length of the key, fingerprint, count,
/// time and value.
const SERIES_BYTES: usize = 2 + 16 + 1 + 1 + 8;

/// A part of a batch in the form in which it is sent. It is kept for repetitions; cloning is cheap.
#[derive(Clone, Debug)]
pub struct EncodedAppend {
    bytes: Bytes,
    partition: u32,
    /// The indexes of the series in the part of the sender, if series were left out.
    numbers: Option<Arc<[u32]>>,
}

impl EncodedAppend {
    /// Returns the partition of all series.
    pub fn partition(&self) -> u32 {
        self.partition
    }

    /// Returns the size of the frame in bytes.
    pub fn frame_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the frame, as [`decode_append`] decodes it.
    pub fn frame(&self) -> &Bytes {
        &self.bytes
    }

    /// Replaces the indexes of series of the frame by those in the part of the sender.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Internal`] if the frame has no series with such an index.
    pub(crate) fn restore_numbers(&self, outcome: &mut AppendOutcome) -> Result<(), Error> {
        let Some(numbers) = &self.numbers else {
            return Ok(());
        };
        let samples = outcome.rejected.iter_mut().map(|r| &mut r.first_series);
        let exemplars = outcome.refused_exemplars.iter_mut();
        for series in samples.chain(exemplars.map(|r| &mut r.first_series)) {
            let number = numbers.get(*series).ok_or_else(|| {
                let text = format!("outcome of the unknown series {series}");
                Error::new(ErrorKind::Internal, text)
            })?;
            *series = *number as usize;
        }
        Ok(())
    }
}

/// The series of a batch that belong to one partition.
#[derive(Clone, Copy, Debug)]
pub struct AppendPart<'a> {
    /// The partition of the series.
    pub partition: u32,
    /// The batch. Undecoded keys of `series` are plain
    /// ([`firn_model::series_key::KeyFormat::is_plain`]).
    pub batch: &'a Batch,
    /// The indexes of the series in the batch, ascending, without rejected ones.
    pub series: &'a [u32],
    /// The fingerprints of the canonical keys of all series of the batch, under the hash of all
    /// stores of the cluster.
    pub prints: &'a [Fingerprint],
}

impl AppendPart<'_> {
    /// Encodes the part. Indexes in its outcome are positions in `series`. Costs a copy of its keys
    /// and samples.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the batch has a journal or is followed by another one, which only
    /// the store of the own process can log, or if `hash` has another key format.
    pub fn encode(
        &self,
        tenant: &TenantId,
        hash: &SeriesHash,
        bounds: AppendBounds,
    ) -> Result<EncodedAppend, Error> {
        check_batch(self.batch, hash)?;
        let mut bytes = Vec::with_capacity(128);
        push_varint(u64::from(self.partition), &mut bytes);
        push_prefixed(tenant.as_str().as_bytes(), &mut bytes);
        push_bounds(bounds, &mut bytes);
        push_print(hash.keys.fingerprint(HASH_CHECK), &mut bytes);
        self.push_keys(&mut bytes);
        push_floats(self.batch, self.series, &mut bytes);
        push_histograms(self.batch, self.series, &mut bytes);
        push_exemplars(self.batch, self.series, &mut bytes);
        Ok(EncodedAppend {
            bytes: bytes.into(),
            partition: self.partition,
            numbers: None,
        })
    }

    /// Appends the keys of the series and their fingerprints. Reserves the memory of float samples,
    /// too.
    fn push_keys(&self, into: &mut Vec<u8>) {
        let key = |number: &u32| self.batch.key(*number as usize);
        // The keys of decoded labels, and their ends.
        let (mut created, mut ends) = (Vec::new(), Vec::new());
        let mut lengths = Vec::with_capacity(self.series.len());
        for number in self.series {
            let length = match key(number) {
                Some(key) => key.len(),
                None => {
                    let start = created.len();
                    let labels = self.batch.series(*number as usize).labels;
                    KEY_FORMAT.push_key(&mut created, labels);
                    ends.push(created.len());
                    created.len() - start
                }
            };
            lengths.push(length);
        }
        let key_bytes: usize = lengths.iter().sum();
        into.reserve(key_bytes + SERIES_BYTES * lengths.len() + 64);
        push_count(lengths.len(), into);
        lengths.iter().for_each(|length| push_count(*length, into));
        let (mut ends, mut start) = (ends.into_iter(), 0);
        for number in self.series {
            match key(number) {
                Some(key) => into.extend_from_slice(key),
                None => {
                    let end = ends.next().unwrap_or(start);
                    into.extend_from_slice(&created[start..end]);
                    start = end;
                }
            }
        }
        for number in self.series {
            push_print(self.prints[*number as usize], into);
        }
    }
}

/// Encodes a whole batch, whose series all belong to `partition`. Decodes the labels of series
/// whose keys are not plain, so that the source records the rejected ones. These are left out.
/// `hash` is the hash of all stores of the cluster. Costs a check of each key, a hash of each key
/// unless the source has the fingerprints, and a copy of all keys and samples.
///
/// # Errors
///
/// Those of [`AppendPart::encode`] and of [`BatchSource::read_labels`].
pub fn encode_append(
    partition: u32,
    tenant: &TenantId,
    source: &mut dyn BatchSource,
    hash: &SeriesHash,
    bounds: AppendBounds,
) -> Result<EncodedAppend, Error> {
    check_batch(source.batch(), hash)?;
    let unread = find_doubtful_keys(source.batch());
    if !unread.is_empty() {
        source.read_labels(&unread)?;
    }
    let batch = source.batch();
    let is_sent = |series: &u32| !batch.is_refused(*series as usize);
    let series: Vec<u32> = (0..batch.series_count() as u32).filter(is_sent).collect();
    let part = AppendPart {
        partition,
        batch,
        series: &series,
        prints: &hash_series(source, hash),
    };
    let mut encoded = part.encode(tenant, hash, bounds)?;
    let is_whole = series.len() == batch.series_count();
    encoded.numbers = (!is_whole).then(|| series.into());
    Ok(encoded)
}

/// Returns the fingerprints of the canonical keys of all series: those of the source, if it has
/// them.
fn hash_series(source: &dyn BatchSource, hash: &SeriesHash) -> Vec<Fingerprint> {
    let batch = source.batch();
    let known = source.fingerprints(&hash.keys);
    let known = known.filter(|known| known.len() == batch.series_count());
    let mut key = Vec::new();
    let mut print = |number: usize| match known {
        Some(known) if !batch.key_may_differ(number) => known[number],
        _ => match batch.key(number) {
            Some(key) => hash.keys.fingerprint(key),
            None => hash.hash_labels(batch.series(number).labels, &mut key),
        },
    };
    (0..batch.series_count()).map(&mut print).collect()
}

fn check_batch(batch: &Batch, hash: &SeriesHash) -> Result<(), Error> {
    let invalid = |text: &str| Err(Error::new(ErrorKind::Invalid, text));
    if !batch.journal().is_empty() {
        return invalid("a batch with a journal cannot be forwarded to a peer");
    }
    if batch.is_followed() {
        return invalid("a batch that is followed by another one cannot be forwarded to a peer");
    }
    if hash.format.name() != KEY_FORMAT.name() {
        return invalid("the stores of a cluster must hash keys of remote write");
    }
    Ok(())
}

/// Returns the undecoded series whose keys are not plain.
fn find_doubtful_keys(batch: &Batch) -> Vec<u32> {
    let has_format = batch.has_key_format(KEY_FORMAT);
    let is_doubtful = |series: &u32| {
        let key = batch.key(*series as usize);
        key.is_some_and(|key| !has_format || !KEY_FORMAT.is_plain(key))
    };
    let numbers = 0..batch.series_count() as u32;
    numbers.filter(is_doubtful).collect()
}

fn push_bounds(bounds: AppendBounds, into: &mut Vec<u8>) {
    push_zigzag(bounds.time_max, into);
    let late = LATE.iter().position(|late| *late == bounds.late);
    into.push(late.expect("all policies are listed") as u8);
    push_zigzag(bounds.in_order_min, into);
    push_option(bounds.newest, into, push_zigzag);
}

fn push_print(print: Fingerprint, into: &mut Vec<u8>) {
    into.extend_from_slice(&print.high.to_le_bytes());
    into.extend_from_slice(&print.low.to_le_bytes());
}

fn push_floats(batch: &Batch, series: &[u32], into: &mut Vec<u8>) {
    let all = || series.iter().map(|number| batch.series(*number as usize));
    let mut has_starts = false;
    for series in all() {
        push_count(series.times.len(), into);
        has_starts |= !series.start_times.is_empty();
    }
    let mut previous = 0i64;
    for time in all().flat_map(|series| series.times) {
        push_zigzag(time.wrapping_sub(previous), into);
        previous = *time;
    }
    for value in all().flat_map(|series| series.values) {
        push_f64(*value, into);
    }
    into.push(u8::from(has_starts));
    if !has_starts {
        return;
    }
    let mut previous = 0i64;
    for start in all().flat_map(|series| series.start_times) {
        push_zigzag(start.wrapping_sub(previous), into);
        previous = *start;
    }
}

fn push_histograms(batch: &Batch, series: &[u32], into: &mut Vec<u8>) {
    let counts = series
        .iter()
        .map(|number| batch.series(*number as usize).histograms.len());
    push_count(counts.sum(), into);
    for (index, number) in series.iter().enumerate() {
        for sample in batch.series(*number as usize).histograms {
            push_count(index, into);
            push_zigzag(sample.time, into);
            push_zigzag(sample.start_time, into);
            push_histogram(&sample.histogram, into);
        }
    }
}

fn push_exemplars(batch: &Batch, series: &[u32], into: &mut Vec<u8>) {
    let all = batch.exemplars();
    if all.is_empty() {
        return push_count(0, into);
    }
    let counts = series
        .iter()
        .map(|number| all.iter_series(u64::from(*number)).count());
    push_count(counts.sum(), into);
    for (index, number) in series.iter().enumerate() {
        for exemplar in all.iter_series(u64::from(*number)) {
            push_count(index, into);
            into.push(u8::from(exemplar.has_own_time));
            push_zigzag(exemplar.time, into);
            push_f64(exemplar.value, into);
            push_prefixed(exemplar.labels.as_bytes(), into);
        }
    }
}
