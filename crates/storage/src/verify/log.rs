//! Verifies one WAL segment: every record and every row in it.
//!
//! The content of a damaged record cannot be determined. Its samples must approximately lie between
//! those of the neighbouring records in time.

use super::finding::{Finding, Part};
use crate::damage::{self, DamageKind};
use crate::error::StorageError;
use crate::file::header::HeaderState;
use crate::file::survey::survey;
use crate::ids::Slot;
use crate::log::SegmentInfo;
use crate::log::segment::{Reader, check_header};
use firn_model::env::{Env, OpenMode};
use firn_model::log::{LogBatch, Position};
use firn_model::sample::TimeRange;
use std::collections::BTreeMap;

/// The result for a segment, and its last position.
#[derive(Default)]
pub(crate) struct Segment {
    pub(crate) part: Part,
    /// Last position that was assigned in the segment.
    pub(crate) last: Position,
}

/// Samples to search for in the WAL: the lost time ranges of each series, with the index of the
/// finding.
pub(crate) type Wanted = BTreeMap<Slot, Vec<(TimeRange, usize)>>;

/// The state while a segment is read.
struct Reading<'a> {
    info: &'a SegmentInfo,
    /// Position up to which pages cover the records.
    trimmed: Position,
    part: Part,
    /// Position of the previous intact record, and the time range of the last samples before it.
    before: (Position, Option<TimeRange>),
    /// Damage after that record.
    open: Vec<Finding>,
}

/// Verifies a segment. If it is the newest one, a torn tail is only a remark.
pub(crate) fn read(
    env: &Env,
    info: &SegmentInfo,
    trimmed: Position,
) -> Result<Segment, StorageError> {
    let mut segment = Segment {
        last: info.first.previous(),
        ..Segment::default()
    };
    let finding = |what: String| Finding::new(DamageKind::Log, &info.path, None, what);
    let part = &mut segment.part;
    part.count_file(info.bytes);
    let file = match env.disk.open(&info.path, OpenMode::Read) {
        Ok(file) => file,
        Err(e) => {
            part.find(finding(format!("it cannot be read: {e}")).unreadable());
            return Ok(segment);
        }
    };
    let header = check_header(&*file, info.first, &info.path)?;
    let survey = survey(file, info.first, info.bytes, 0);
    segment.last = survey.last;
    if survey.unreadable || header == HeaderState::Unreadable {
        part.find(finding("the disk does not deliver all of it".to_owned()).unreadable());
    }
    if info.next.is_none() && header == HeaderState::Damaged && survey.last < info.first {
        part.remark(&info.path, "it was never completed and contains no record");
        return Ok(segment);
    }
    let mut info = info.clone();
    if info.next.is_none() && survey.end < info.bytes {
        let torn = info.bytes - survey.end;
        part.remark(
            &info.path,
            format!("its last {torn} bytes are an incomplete record that was never acknowledged"),
        );
        info.bytes = survey.end;
    }
    let mut reading = Reading {
        info: &info,
        trimmed,
        part: std::mem::take(&mut segment.part),
        before: (info.first.previous(), None),
        open: Vec::new(),
    };
    reading.read(Reader::open(&*env.disk, info.clone())?);
    reading.close(
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
        segment.part.remark(&info.path, what);
    }
    Ok(segment)
}

impl Reading<'_> {
    fn read(&mut self, mut reader: Reader) {
        while let Some(item) = reader.next() {
            let record = match item {
                Ok(record) => record,
                Err(e) => {
                    let damage = damage::met(DamageKind::Log, &e);
                    let finding =
                        Finding::new(DamageKind::Log, &self.info.path, damage.offset, damage.what);
                    self.open.push(finding);
                    continue;
                }
            };
            count_batch(&record.batch, &mut self.part);
            let range = record.batch.time_range();
            self.close(record.position, range);
            self.before = (record.position, range.or(self.before.1));
        }
    }

    /// Completes the open findings at the next intact record, whose samples have the time range
    /// `after`.
    fn close(&mut self, position: Position, after: Option<TimeRange>) {
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
            self.part.find(finding);
        }
    }
}

/// Counts the samples and exemplars of a batch, and adds its new series to those with labels.
fn count_batch(batch: &LogBatch, part: &mut Part) {
    let named = &mut part.named;
    batch.created.for_each(|slot, _| named.add(Slot(slot)));
    part.report.exemplars += batch.exemplars.len() as u64;
    for (slot, _) in batch.samples().chain(batch.late_samples()) {
        part.read.add(Slot(slot));
        part.report.log_samples += 1;
    }
}

/// Counts the samples of `wanted` in a segment, by the index of their finding.
pub(crate) fn count(
    env: &Env,
    info: &SegmentInfo,
    wanted: &Wanted,
) -> Result<BTreeMap<usize, u64>, StorageError> {
    let mut counts = BTreeMap::new();
    let mut reader = Reader::open(&*env.disk, info.clone())?;
    while let Some(item) = reader.next() {
        // Damage was reported before, when the segment was verified.
        let Ok(record) = item else { continue };
        for (slot, time) in record.batch.samples() {
            for (range, finding) in wanted.get(&Slot(slot)).into_iter().flatten() {
                if range.min <= time && time <= range.max {
                    *counts.entry(*finding).or_default() += 1;
                }
            }
        }
    }
    Ok(counts)
}
