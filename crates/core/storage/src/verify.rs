//! Verification: reads all data in a data folder and reports the damage with the number of lost
//! samples.
//!
//! ```text
//! lock -> FORMAT -> MANIFEST -> catalogue and exemplars -> pages, all compute threads
//!   -> manifest of blocks -> blocks, all compute threads
//!   -> WAL -> samples lost from pages that the WAL still contains
//! ```
//!
//! Invariant: nothing in the folder is changed, and nothing is created except the file `LOCK` if it
//! does not exist. Memory is bounded by the largest damaged range of a segment for each thread,
//! plus the findings.

mod blocks;
pub(crate) mod catalogue;
pub(crate) mod finding;
pub(crate) mod frames;
mod log;
mod nameless;
mod names;
pub(crate) mod pages;
pub(crate) mod slots;
#[cfg(test)]
pub(crate) mod tests;

pub use finding::{VerifyFinding, VerifyRemark, VerifyReport};

use crate::damage::DamageKind;
use crate::data_dir::DataDir;
use crate::error::{StorageError, is_disk_fault};
use crate::fan_out::map;
use crate::log::LogSegmentInfo;
use crate::log::segment;
use crate::manifest::{self, Manifest, PageSegmentState};
use crate::sealed::segment::PAGES;
use finding::VerifyPart;
use firn_model::env::{Env, OpenMode};
use firn_model::log::LogPosition;
use slots::SeriesSlotSet;
use std::io::ErrorKind;
use std::path::Path;

/// Verifies the data folder at `root`, which no other process may use in the meantime.
pub fn verify(env: &Env, root: &Path) -> Result<VerifyReport, StorageError> {
    let dir = DataDir::hold(env, root)?;
    Ok(verify_held(env, &dir)?.0)
}

/// Like `verify`, for a folder whose lock the caller holds. If labels of series with samples are
/// lost, also returns the set of series whose labels are intact.
pub(crate) fn verify_held(
    env: &Env,
    dir: &DataDir,
) -> Result<(VerifyReport, Option<SeriesSlotSet>), StorageError> {
    let mut all = VerifyPart::default();
    let manifest = read_manifest(env, dir, &mut all);
    names::check(env, dir, &mut all)?;
    let said = catalogue::read_catalogue(env, dir, &manifest, &mut all)?;
    catalogue::read_exemplars(env, dir, &manifest, &mut all)?;
    read_pages(env, dir, &manifest, &mut all)?;
    blocks::read(env, dir, &mut all)?;
    let segments = log_segments(env, dir)?;
    let trimmed = said.trimmed.max(manifest.trimmed);
    read_log(env, dir, &segments, trimmed, manifest.logged, &mut all)?;
    count_lost_in_log(env, &segments, &mut all)?;
    all.report.series = all.read.len();
    // Pages may contain samples of removed series, which the catalogue need not list.
    if !said.is_lost || all.read.len_without(&all.named) == 0 {
        return Ok((all.report, None));
    }
    let named = std::mem::take(&mut all.named);
    report_unlabelled_series(env, dir, &manifest, &named, &mut all)?;
    Ok((all.report, Some(named)))
}

/// Reports the series whose labels are lost, and the segments that contain samples of them.
fn report_unlabelled_series(
    env: &Env,
    dir: &DataDir,
    manifest: &Manifest,
    named: &SeriesSlotSet,
    all: &mut VerifyPart,
) -> Result<(), StorageError> {
    let nameless = all.read.len_without(named);
    let what = format!("the labels of {nameless} series with samples are lost");
    let mut finding = VerifyFinding::new(DamageKind::Catalogue, &dir.series(), None, what);
    finding.series = Some(nameless);
    all.add_finding(finding);
    let folder = dir.pages();
    let numbers = default_if_missing(PAGES.list(env, &folder))?;
    let read = |i: usize| {
        let known = manifest.segment(numbers[i]);
        nameless::find(env, &folder, numbers[i], known, named)
    };
    read_parallel(env, numbers.len(), &read, &mut |finding| {
        all.report.findings.extend(finding);
    })
}

fn read_manifest(env: &Env, dir: &DataDir, part: &mut VerifyPart) -> Manifest {
    let path = dir.root().join(manifest::NAME);
    let size = env.disk.open(&path, OpenMode::Read).and_then(|f| f.len());
    part.count_file(size.unwrap_or(0));
    let what = match Manifest::read(&*env.disk, dir.root()) {
        Ok(Some(manifest)) => return manifest,
        Ok(None) if dir.is_without_manifest() => return Manifest::default(),
        Ok(None) => "the file is missing; other missing files cannot be detected".to_owned(),
        Err(damage) => damage.what,
    };
    part.add_finding(VerifyFinding::new(DamageKind::Manifest, &path, None, what));
    Manifest::default()
}

/// Replaces the error for a missing folder by an empty list.
pub(crate) fn default_if_missing<T: Default>(
    listed: Result<T, StorageError>,
) -> Result<T, StorageError> {
    match listed {
        Err(StorageError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            Ok(T::default())
        }
        listed => listed,
    }
}

/// Calls `read` for `count` items on the compute threads, and passes the results to `take` in
/// order.
fn read_parallel<T: Send>(
    env: &Env,
    count: usize,
    read: &(dyn Fn(usize) -> Result<T, StorageError> + Sync),
    take: &mut dyn FnMut(T),
) -> Result<(), StorageError> {
    let read = map(&*env.compute, count, read);
    read.into_iter().try_for_each(|read| read.map(&mut *take))
}

fn read_pages(
    env: &Env,
    dir: &DataDir,
    manifest: &Manifest,
    all: &mut VerifyPart,
) -> Result<(), StorageError> {
    let folder = dir.pages();
    let numbers = default_if_missing(PAGES.list(env, &folder))?;
    for entry in &manifest.segments {
        let what = match entry.state {
            PageSegmentState::Lost => "a part of it was lost earlier, according to the manifest",
            _ if numbers.contains(&entry.number) || entry.pages == 0 => continue,
            _ => "the file is missing",
        };
        let path = PAGES.path(&folder, entry.number);
        let finding = VerifyFinding::new(DamageKind::Pages, &path, None, what.to_owned());
        all.add_finding(finding.with_loss(entry.samples, entry.range));
    }
    let read = |i: usize| pages::read(env, &folder, numbers[i], manifest.segment(numbers[i]));
    read_parallel(env, numbers.len(), &read, &mut |part| all.add(part))
}

/// Returns the WAL segments as the WAL itself lists them at start.
pub(crate) fn log_segments(env: &Env, dir: &DataDir) -> Result<Vec<LogSegmentInfo>, StorageError> {
    let folder = dir.wal();
    let firsts = default_if_missing(segment::list(&*env.disk, &folder))?;
    let nexts = firsts.iter().skip(1).map(|next| Some(*next)).chain([None]);
    let info = |(first, next): (&LogPosition, Option<LogPosition>)| {
        let path = folder.join(segment::file_name(*first));
        let opened = env.disk.open(&path, OpenMode::Read);
        let bytes = match opened.and_then(|file| file.len()) {
            Ok(bytes) => bytes,
            // Reading the segment reports the fault.
            Err(e) if is_disk_fault(&e) => 0,
            Err(e) => return Err(StorageError::io("open segment", &path)(e)),
        };
        Ok(LogSegmentInfo {
            path,
            first: *first,
            next,
            bytes,
        })
    };
    firsts.iter().zip(nexts).map(info).collect()
}

fn read_log(
    env: &Env,
    dir: &DataDir,
    segments: &[LogSegmentInfo],
    trimmed: LogPosition,
    logged: LogPosition,
    all: &mut VerifyPart,
) -> Result<(), StorageError> {
    let mut last = trimmed;
    let read = |i: usize| log::read(env, &segments[i], trimmed);
    let missing = |from: LogPosition, to: LogPosition, all: &mut VerifyPart| {
        if from <= to {
            let what = format!("records {} to {} are missing", from.0, to.0);
            all.add_finding(VerifyFinding::new(DamageKind::Log, &dir.wal(), None, what));
        }
    };
    // The first position of a segment follows positions that were all assigned.
    let first = segments.first().map(|segment| segment.first.previous());
    missing(trimmed.next(), first.unwrap_or(logged), all);
    read_parallel(env, segments.len(), &read, &mut |segment| {
        last = last.max(segment.last);
        all.add(segment.part);
    })?;
    if !segments.is_empty() {
        missing(last.next(), logged, all);
    }
    Ok(())
}

/// Counts the samples in the WAL that pages have lost.
fn count_lost_in_log(
    env: &Env,
    segments: &[LogSegmentInfo],
    all: &mut VerifyPart,
) -> Result<(), StorageError> {
    let mut wanted = log::WantedLogSamples::new();
    for lost in std::mem::take(&mut all.lost) {
        let of_slot = wanted.entry(lost.slot).or_default();
        of_slot.push((lost.range, lost.finding));
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let count = |i: usize| log::count(env, &segments[i], &wanted);
    let findings = &mut all.report.findings;
    read_parallel(env, segments.len(), &count, &mut |counts| {
        for (finding, count) in counts {
            findings[finding].in_log += count;
        }
    })
}
