//! Verifies files of frames: the series catalogue, its copy and the exemplars.

use super::finding::{VerifyFinding, VerifyPart};
use crate::damage::DamageKind;
use crate::encoding::DecodeError;
use crate::error::StorageError;
use crate::file::append_only::{self, FileKind};
use crate::file::header::{FILE_HEADER_BYTES, FileHeaderState};
use crate::file::scan::{FrameScanItem, FrameScanner};
use crate::file::survey::survey;
use firn_model::env::{Env, OpenMode};
use firn_model::log::LogPosition;
use std::ops::Range;
use std::path::Path;

/// The callback that receives the position and the payload of each intact frame.
pub(crate) type EachFrame<'a> = dyn FnMut(LogPosition, &[u8]) -> Result<(), DecodeError> + 'a;

/// A file to verify, and the durable length that the manifest records for it.
#[derive(Clone, Copy)]
pub(crate) struct VerifiedFile<'a> {
    /// Kind of the file, and the kind of damage to report.
    pub(crate) kind: (FileKind, DamageKind),
    /// Path of the file.
    pub(crate) path: &'a Path,
    /// Number in the file name.
    pub(crate) number: LogPosition,
    /// Minimum length of the file in bytes.
    pub(crate) durable_bytes: u64,
}

impl VerifiedFile<'_> {
    /// Returns a finding about this file, at a byte offset if there is one.
    fn finding(&self, offset: Option<u64>, what: String) -> VerifyFinding {
        VerifyFinding::new(self.kind.1, self.path, offset, what)
    }
}

/// The end of the data in a file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VerifiedFileEnd {
    /// Last position that was assigned in the file, even if its frame is damaged.
    pub(crate) last: LogPosition,
    /// True if further frames may be missing.
    pub(crate) is_open: bool,
}

/// Reads all frames of a file and passes their payloads to `each`. Reports a torn tail as a remark.
pub(crate) fn read(
    env: &Env,
    named: VerifiedFile<'_>,
    part: &mut VerifyPart,
    each: &mut EachFrame<'_>,
) -> Result<VerifiedFileEnd, StorageError> {
    let kind = named.kind.0;
    let finding = |offset, what| named.finding(offset, what);
    let opened = env.disk.open(named.path, OpenMode::Read);
    let (file, bytes) = match opened.and_then(|file| Ok((file.len()?, file))) {
        Ok((bytes, file)) => (file, bytes),
        Err(e) => {
            part.add_finding(finding(None, format!("it cannot be read: {e}")).with_unreadable());
            return Ok(VerifiedFileEnd {
                last: LogPosition(0),
                is_open: true,
            });
        }
    };
    part.count_file(bytes);
    let header = append_only::check_header(&*file, kind, named.number, named.path)?;
    let survey = survey(file.clone(), named.number, bytes, named.durable_bytes);
    if survey.unreadable || header == FileHeaderState::Unreadable {
        part.add_finding(
            finding(None, "the disk does not deliver all of it".to_owned()).with_unreadable(),
        );
    }
    let is_begun = survey.last >= named.number || named.durable_bytes > FILE_HEADER_BYTES;
    match header {
        FileHeaderState::Damaged if is_begun => {
            part.add_finding(finding(Some(0), "the file header is not sound".to_owned()));
        }
        FileHeaderState::Damaged => part.add_remark(named.path, "it was never begun"),
        _ => {}
    }
    if bytes < named.durable_bytes {
        let there = named.durable_bytes;
        part.add_finding(finding(
            Some(bytes),
            format!("it is truncated: {bytes} of {there} bytes exist"),
        ));
    }
    let scanner = FrameScanner::new(file, named.number, FILE_HEADER_BYTES..bytes);
    read_frames(scanner, &named, survey.end..bytes, part, each);
    Ok(VerifiedFileEnd {
        last: survey.last,
        is_open: bytes < named.durable_bytes,
    })
}

/// Passes the payload of each frame to `each`, and reports the bytes between frames that belong to
/// none. Damage from the start of `tail` to the end of the file is an incomplete record.
fn read_frames(
    mut scanner: FrameScanner,
    named: &VerifiedFile<'_>,
    tail: Range<u64>,
    part: &mut VerifyPart,
    each: &mut EachFrame<'_>,
) {
    let kind = named.kind.0;
    let finding = |offset, what| named.finding(offset, what);
    while let Some(found) = scanner.next() {
        match found {
            FrameScanItem::Damage(range) if range.start >= tail.start => {
                let torn = tail.end - range.start;
                let what = format!(
                    "its last {torn} bytes are an incomplete record that was never acknowledged"
                );
                part.add_remark(named.path, what);
                break;
            }
            FrameScanItem::Damage(range) => {
                let what = format!("{} bytes are not a valid frame", range.end - range.start);
                part.add_finding(finding(Some(range.start), what));
            }
            FrameScanItem::Frame { offset, header } if header.kind == kind.frame => {
                let position = header.position;
                if let Err(e) = each(position, scanner.payload(offset, &header)) {
                    part.add_finding(finding(Some(offset), e.to_string()));
                }
            }
            FrameScanItem::Frame { .. } => {}
        }
    }
}
