//! Verifies one WAL segment: every record and every row in it.
//!
//! The content of a damaged record cannot be determined. Its samples must approximately lie between
//! those of the neighbouring records in time.

use super::finding::{VerifyFinding, VerifyPart};
use crate::damage::{self, DamageKind};
use crate::error::StorageError;
use crate::file::header::FileHeaderState;
use crate::file::survey::survey;
use crate::ids::SeriesSlot;
use crate::log::LogSegmentInfo;
use crate::log::segment::{LogSegmentReader, check_header};
use firn_model::env::{Env, OpenMode};
use firn_model::log::{LogBatch, LogPosition};
use firn_model::sample::TimeRange;
use std::collections::BTreeMap;

/// The result for a segment, and its last position.
#[derive(Default)]
pub(crate) struct VerifiedLogSegment {
    pub(crate) part: VerifyPart,
    /// Last position that was assigned in the segment.
    pub(crate) last: LogPosition,
}

/// Samples to search for in the WAL: the lost time ranges of each series, with the index of the
/// finding.
pub(crate) type WantedLogSamples = BTreeMap<SeriesSlot, Vec<(TimeRange, usize)>>;

/// The state while a segment is read.
struct LogSegmentVerifier<'a> {
    info: &'a LogSegmentInfo,
    /// Position up to which pages cover the records.
    trimmed: LogPosition,
    part: VerifyPart,
    /// Position of the previous intact record, and the time range of the last samples before it.
    before: (LogPosition, Option<TimeRange>),
    /// Damage after that record.
    open: Vec<VerifyFinding>,
}

/// Verifies a segment. If it is the newest one, a torn tail is only a remark.
pub(crate) fn read(
    env: &Env,
    info: &LogSegmentInfo,
    trimmed: LogPosition,
) -> Result<VerifiedLogSegment, StorageError> {
    let mut segment = VerifiedLogSegment {
        last: info.first.previous(),
        ..VerifiedLogSegment::default()
    };
    let finding = |what: String| VerifyFinding::new(DamageKind::Log, &info.path, None, what);
    let part = &mut segment.part;
    part.count_file(info.bytes);
    let file = match env.disk.open(&info.path, OpenMode::Read) {
        Ok(file) => file,
        Err(e) => {
            part.add_finding(finding(format!("it cannot be read: {e}")).with_unreadable());
            return Ok(segment);
        }
    };
    let header = check_header(&*file, info.first, &info.path)?;
    let survey = survey(file, info.first, info.bytes, 0);
    segment.last = survey.last;
    if survey.unreadable || header == FileHeaderState::Unreadable {
        part.add_finding(
            finding("the disk does not deliver all of it".to_owned()).with_unreadable(),
        );
    }
    if info.next.is_none() && header == FileHeaderState::Damaged && survey.last < info.first {
        part.add_remark(&info.path, "it was never completed and contains no record");
        return Ok(segment);
    }
    let mut info = info.clone();
    if info.next.is_none() && survey.end < info.bytes {
        let torn = info.bytes - survey.end;
        part.add_remark(
            &info.path,
            format!("its last {torn} bytes are an incomplete record that was never acknowledged"),
        );
        info.bytes = survey.end;
    }
    let mut reading = LogSegmentVerifier {
        info: &info,
        trimmed,
        part: std::mem::take(&mut segment.part),
        before: (info.first.previous(), None),
        open: Vec::new(),
    };
    reading.read(LogSegmentReader::open(&*env.disk, info.clone())?);
    reading.close_findings(
        segment
            .last
            .max(info.next.unwrap_or_default().previous())
            .next(),
        None,
    );
    segment.part = reading.part;
    if info.next.is_some() && survey.end < info.bytes && segment.part.report.is_whole() {
        let behind = info.bytes - survey.end;
        let what = format!(
            "the {behind} bytes after its last record are not a record; no record is missing"
        );
        segment.part.add_remark(&info.path, what);
    }
    Ok(segment)
}

impl LogSegmentVerifier<'_> {
    fn read(&mut self, mut reader: LogSegmentReader) {
        while let Some(item) = reader.next() {
            let record = match item {
                Ok(record) => record,
                Err(e) => {
                    let damage = damage::damage_from_error(DamageKind::Log, &e);
                    let finding = VerifyFinding::new(
                        DamageKind::Log,
                        &self.info.path,
                        damage.offset,
                        damage.what,
                    );
                    self.open.push(finding);
                    continue;
                }
            };
            count_batch(&record.batch, &mut self.part);
            let range = record.batch.time_range();
            self.close_findings(record.position, range);
            self.before = (record.position, range.or(self.before.1));
        }
    }

    /// Completes the open findings at the next intact record, whose samples have the time range
    /// `after`.
    fn close_findings(&mut self, position: LogPosition, after: Option<TimeRange>) {
        let (last, before) = self.before;
        let range = TimeRange::hull_of(before, after);
        for mut finding in self.open.drain(..) {
            let is_block_lost = position > last.next();
            if !is_block_lost {
                finding.damage.samples = Some(0);
            } else if position.previous() <= self.trimmed {
                finding.damage.samples = Some(0);
                finding
                    .damage
                    .what
                    .push_str("; its samples are also in pages");
            } else {
                finding.damage.range = range;
            }
            self.part.add_finding(finding);
        }
    }
}

/// Counts the samples and exemplars of a batch, and adds its new series to those with labels.
fn count_batch(batch: &LogBatch, part: &mut VerifyPart) {
    let named = &mut part.named;
    batch
        .created
        .for_each(|slot, _| named.add(SeriesSlot(slot)));
    part.report.exemplars += batch.exemplars.len() as u64;
    for (slot, _) in batch.samples().chain(batch.late_samples()) {
        part.read.add(SeriesSlot(slot));
        part.report.log_samples += 1;
    }
}

/// Counts the samples of `wanted` in a segment, by the index of their finding.
pub(crate) fn count(
    env: &Env,
    info: &LogSegmentInfo,
    wanted: &WantedLogSamples,
) -> Result<BTreeMap<usize, u64>, StorageError> {
    let mut counts = BTreeMap::new();
    let mut reader = LogSegmentReader::open(&*env.disk, info.clone())?;
    while let Some(item) = reader.next() {
        // Damage was reported before, when the segment was verified.
        let Ok(record) = item else { continue };
        for (slot, time) in record.batch.samples() {
            for (range, finding) in wanted.get(&SeriesSlot(slot)).into_iter().flatten() {
                if range.min <= time && time <= range.max {
                    *counts.entry(*finding).or_default() += 1;
                }
            }
        }
    }
    Ok(counts)
}
