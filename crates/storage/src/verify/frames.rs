//! Verifies files of frames: the series catalogue, its copy and the exemplars.

use super::finding::{Finding, Part};
use crate::damage::DamageKind;
use crate::encoding::Malformed;
use crate::error::StorageError;
use crate::file::append_only::{self, FileKind};
use crate::file::header::{FILE_HEADER_BYTES, HeaderState};
use crate::file::scan::{Found, Scanner};
use crate::file::survey::survey;
use firn_model::env::{Env, OpenMode};
use firn_model::log::Position;
use std::path::Path;

/// The callback that receives the position and the payload of each intact frame.
pub(crate) type EachFrame<'a> = dyn FnMut(Position, &[u8]) -> Result<(), Malformed> + 'a;

/// A file to verify, and the durable length that the manifest records for it.
#[derive(Clone, Copy)]
pub(crate) struct Named<'a> {
    /// Kind of the file, and the kind of damage to report.
    pub(crate) kind: (FileKind, DamageKind),
    /// Path of the file.
    pub(crate) path: &'a Path,
    /// Number in the file name.
    pub(crate) number: Position,
    /// Minimum length of the file in bytes.
    pub(crate) durable_bytes: u64,
}

/// The end of the data in a file.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct End {
    /// Last position that was assigned in the file, even if its frame is damaged.
    pub(crate) last: Position,
    /// True if further frames may be missing.
    pub(crate) is_open: bool,
}

/// Reads all frames of a file and passes their payloads to `each`. Reports a torn tail as a remark.
pub(crate) fn read(
    env: &Env,
    named: Named<'_>,
    part: &mut Part,
    each: &mut EachFrame<'_>,
) -> Result<End, StorageError> {
    let (kind, damage_kind) = named.kind;
    let finding = |offset, what: String| Finding::new(damage_kind, named.path, offset, what);
    let opened = env.disk.open(named.path, OpenMode::Read);
    let (file, bytes) = match opened.and_then(|file| Ok((file.len()?, file))) {
        Ok((bytes, file)) => (file, bytes),
        Err(e) => {
            part.find(finding(None, format!("it cannot be read: {e}")).unreadable());
            return Ok(End {
                last: Position(0),
                is_open: true,
            });
        }
    };
    part.count_file(bytes);
    let header = append_only::check_header(&*file, kind, named.number, named.path)?;
    let survey = survey(file.clone(), named.number, bytes, named.durable_bytes);
    if survey.unreadable || header == HeaderState::Unreadable {
        part.find(finding(None, "the disk does not deliver all of it".to_owned()).unreadable());
    }
    let is_begun = survey.last >= named.number || named.durable_bytes > FILE_HEADER_BYTES;
    match header {
        HeaderState::Damaged if is_begun => {
            part.find(finding(Some(0), "the file header is not sound".to_owned()));
        }
        HeaderState::Damaged => part.remark(named.path, "it was never begun"),
        _ => {}
    }
    if bytes < named.durable_bytes {
        let there = named.durable_bytes;
        part.find(finding(
            Some(bytes),
            format!("it is truncated: {bytes} of {there} bytes exist"),
        ));
    }
    let mut scanner = Scanner::new(file, named.number, FILE_HEADER_BYTES..bytes);
    while let Some(found) = scanner.next() {
        match found {
            Found::Damage(range) if range.start >= survey.end => {
                let torn = bytes - range.start;
                let what = format!(
                    "its last {torn} bytes are an incomplete record that was never acknowledged"
                );
                part.remark(named.path, what);
                break;
            }
            Found::Damage(range) => {
                let what = format!("{} bytes are not a valid frame", range.end - range.start);
                part.find(finding(Some(range.start), what));
            }
            Found::Frame { offset, header } if header.kind == kind.frame => {
                let position = header.position;
                if let Err(e) = each(position, scanner.payload(offset, &header)) {
                    part.find(finding(Some(offset), e.to_string()));
                }
            }
            Found::Frame { .. } => {}
        }
    }
    Ok(End {
        last: survey.last,
        is_open: bytes < named.durable_bytes,
    })
}
