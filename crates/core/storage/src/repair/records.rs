//! Rewrites the catalogue and the exemplars from their intact records.

use crate::catalogue::payload::PayloadInflater;
use crate::damage::DamageKind;
use crate::encoding::DecodeError;
use crate::error::StorageError;
use crate::file::append_only::{self, AppendOnlyFile, FileKind};
use crate::verify::finding::VerifyPart;
use crate::verify::frames::{self, VerifiedFile};
use crate::verify::{catalogue, default_if_missing};
use firn_model::env::Env;
use firn_model::log::LogPosition;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Collects all intact payloads from the files of `kinds` in `folder`, which are copies of each
/// other, writes them to a new file of each kind and removes the old files.
pub(super) fn rewrite(
    env: &Env,
    folder: &Path,
    kinds: &[FileKind],
    damage_kind: DamageKind,
) -> Result<(), StorageError> {
    let mut payloads = BTreeMap::new();
    let mut old: Vec<PathBuf> = Vec::new();
    let mut last = LogPosition(0);
    let mut inflater = PayloadInflater::default();
    for kind in kinds {
        for number in default_if_missing(kind.list(env, folder))? {
            let path = kind.path(folder, number);
            let named = VerifiedFile {
                kind: (*kind, damage_kind),
                path: &path,
                number,
                durable_bytes: 0,
            };
            let each = &mut |position: LogPosition, payload: &[u8]| -> Result<(), DecodeError> {
                catalogue::check_payload(damage_kind, payload, &mut inflater)?;
                payloads.entry(position).or_insert_with(|| payload.to_vec());
                Ok(())
            };
            let end = frames::read(env, named, &mut VerifyPart::default(), each)?;
            last = last.max(end.last).max(number);
            old.push(path);
        }
    }
    if !payloads.is_empty() {
        write(env, folder, kinds, last.next(), &payloads)?;
    }
    old.iter()
        .try_for_each(|path| append_only::remove(env, path))
}

fn write(
    env: &Env,
    folder: &Path,
    kinds: &[FileKind],
    number: LogPosition,
    payloads: &BTreeMap<LogPosition, Vec<u8>>,
) -> Result<(), StorageError> {
    let begin = |kind: &FileKind| kind.begin(env, folder, number);
    let mut files: Vec<AppendOnlyFile> = kinds.iter().map(begin).collect::<Result<_, _>>()?;
    for file in &mut files {
        for payload in payloads.values() {
            file.append(payload)?;
        }
        file.sync()?;
    }
    for (kind, file) in kinds.iter().zip(&mut files) {
        kind.install_file(env, folder, file)?;
    }
    Ok(())
}
