//! Finds samples in pages whose series have lost their labels.

use super::finding::VerifyFinding;
use super::pages::{PageSegmentPiece, examine, open};
use super::slots::SeriesSlotSet;
use crate::damage::DamageKind;
use crate::error::StorageError;
use crate::manifest::PageSegmentEntry;
use crate::sealed::segment::PAGES;
use firn_model::env::{Env, OpenMode};
use firn_model::log::LogPosition;
use firn_model::sample::TimeRange;
use std::path::Path;

/// Returns a finding for the readable samples of a segment whose series are not in `named`, if
/// there are any.
pub(crate) fn find(
    env: &Env,
    folder: &Path,
    number: LogPosition,
    known: Option<&PageSegmentEntry>,
    named: &SeriesSlotSet,
) -> Result<Option<VerifyFinding>, StorageError> {
    let path = PAGES.path(folder, number);
    // A segment that cannot be opened was reported before.
    let Ok(file) = env.disk.open(&path, OpenMode::Read) else {
        return Ok(None);
    };
    let (mut slots, mut samples) = (SeriesSlotSet::default(), 0);
    let mut range = None;
    open(env, file, number, &path, known)?.for_each_piece(&mut |piece| {
        let PageSegmentPiece::Page(found) = piece else {
            return;
        };
        let Ok(examined) = examine(&found.bytes) else {
            return;
        };
        for slot in examined.whole.iter().filter(|slot| !named.has(**slot)) {
            if let Ok(Some(column)) = examined.page.find_column(*slot) {
                slots.add(*slot);
                samples += column.sample_count() as u64;
                range = TimeRange::hull_of(range, Some(column.range()));
            }
        }
    });
    let what = "it has samples of series whose labels are lost".to_owned();
    let finding = VerifyFinding::new(DamageKind::Pages, &path, None, what);
    let finding = finding.with_loss(Some(samples), range);
    Ok((samples > 0).then(|| VerifyFinding {
        series: Some(slots.len()),
        ..finding
    }))
}
