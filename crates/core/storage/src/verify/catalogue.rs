//! Verifies the two copies of the series catalogue and the file of exemplars, and determines the
//! series that are missing in both copies.

use super::finding::{VerifyFinding, VerifyPart};
use super::frames::{self, VerifiedFile};
use crate::catalogue::payload::{CataloguePayload, PayloadInflater};
use crate::catalogue::{COPY, SERIES};
use crate::damage::DamageKind;
use crate::data_dir::DataDir;
use crate::encoding::DecodeError;
use crate::error::StorageError;
use crate::exemplars::{EXEMPLARS, count_payload};
use crate::file::append_only::FileKind;
use crate::ids::SeriesSlot;
use crate::manifest::Manifest;
use firn_model::env::Env;
use firn_model::log::LogPosition;
use firn_model::series_key::CanonicalKeys;
use std::collections::BTreeSet;
use std::path::Path;

/// The results of reading the catalogue, in addition to its series.
pub(crate) struct CatalogueVerification {
    /// Position up to which pages and blocks cover the WAL.
    pub(crate) trimmed: LogPosition,
    /// True if both copies have lost the same part, so that labels of series are lost.
    pub(crate) is_lost: bool,
}

/// Verifies both copies of the catalogue and adds the series whose labels are intact to `part`.
pub(crate) fn read_catalogue(
    env: &Env,
    dir: &DataDir,
    manifest: &Manifest,
    part: &mut VerifyPart,
) -> Result<CatalogueVerification, StorageError> {
    let folder = dir.series();
    let mut said = CatalogueVerification {
        trimmed: LogPosition(0),
        is_lost: false,
    };
    let numbers = [list(env, SERIES, &folder)?, list(env, COPY, &folder)?];
    let newest = numbers.iter().flatten().max().copied().unwrap_or_default();
    let newest = newest.max(manifest.catalogue.number);
    let mut held: BTreeSet<LogPosition> = BTreeSet::new();
    let mut last = LogPosition(0);
    let mut open_ends = 0;
    let mut inflater = PayloadInflater::default();
    let first_finding = part.report.findings.len();
    for (kind, numbers) in [SERIES, COPY].into_iter().zip(&numbers) {
        for number in numbers {
            let path = kind.path(&folder, *number);
            let named = VerifiedFile {
                kind: (kind, DamageKind::Catalogue),
                path: &path,
                number: *number,
                durable_bytes: manifest.catalogue.durable_bytes(*number),
            };
            let mut slots = std::mem::take(&mut part.named);
            let each = &mut |position: LogPosition, payload: &[u8]| -> Result<(), DecodeError> {
                let payload = CataloguePayload::read(payload, &mut inflater)?;
                payload
                    .records()
                    .read(&CanonicalKeys, |slot, _| slots.add(SeriesSlot(slot)))
                    .map_err(DecodeError::from_labels)?;
                said.trimmed = said.trimmed.max(payload.header.trimmed);
                held.insert(position);
                Ok(())
            };
            let end = frames::read(env, named, part, each)?;
            part.named = slots;
            if *number == newest {
                last = last.max(end.last);
                open_ends += usize::from(end.is_open);
            }
        }
        if !numbers.contains(&newest)
            && newest == manifest.catalogue.number
            && newest > LogPosition(0)
        {
            let path = kind.path(&folder, newest);
            let what = "the file is missing".to_owned();
            part.add_finding(VerifyFinding::new(DamageKind::Catalogue, &path, None, what));
            open_ends += 1;
        }
    }
    let findings = &mut part.report.findings[first_finding..];
    let has_gap = (newest.0..=last.0).any(|p| !held.contains(&LogPosition(p)));
    said.is_lost = !findings.is_empty() && (has_gap || open_ends == 2);
    let cost = if said.is_lost {
        "; series without labels are lost with it"
    } else {
        "; the other copy of the file contains the missing data"
    };
    for finding in findings {
        finding.damage.what.push_str(cost);
    }
    Ok(said)
}

fn list(env: &Env, kind: FileKind, folder: &Path) -> Result<Vec<LogPosition>, StorageError> {
    super::default_if_missing(kind.list(env, folder))
}

/// Decodes a payload of the catalogue or of the exemplars, and returns an error if it is malformed.
pub(crate) fn check_payload(
    kind: DamageKind,
    payload: &[u8],
    inflater: &mut PayloadInflater,
) -> Result<(), DecodeError> {
    match kind {
        DamageKind::Exemplars => count_payload(payload).map(|_| ()),
        _ => CataloguePayload::read(payload, inflater)?
            .records()
            .read(&CanonicalKeys, |_, _| ())
            .map_err(DecodeError::from_labels),
    }
}

/// Verifies the file of exemplars and counts the readable exemplars.
pub(crate) fn read_exemplars(
    env: &Env,
    dir: &DataDir,
    manifest: &Manifest,
    part: &mut VerifyPart,
) -> Result<(), StorageError> {
    let folder = dir.exemplars();
    let numbers = list(env, EXEMPLARS, &folder)?;
    let known = manifest.exemplars;
    if numbers.last().copied().unwrap_or_default() < known.number {
        let path = EXEMPLARS.path(&folder, known.number);
        let what = "the file is missing; its exemplars are lost".to_owned();
        part.add_finding(VerifyFinding::new(DamageKind::Exemplars, &path, None, what));
    }
    for number in numbers {
        let path = EXEMPLARS.path(&folder, number);
        let named = VerifiedFile {
            kind: (EXEMPLARS, DamageKind::Exemplars),
            path: &path,
            number,
            durable_bytes: known.durable_bytes(number),
        };
        let mut count = 0;
        let each = &mut |_: LogPosition, payload: &[u8]| -> Result<(), DecodeError> {
            count += count_payload(payload)?;
            Ok(())
        };
        frames::read(env, named, part, each)?;
        part.report.exemplars += count;
    }
    Ok(())
}
