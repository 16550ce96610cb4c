//! Finds files in the data folder that this version does not use.

use super::default_if_missing;
use super::finding::VerifyPart;
use crate::block::BlockId;
use crate::blocks::BlockList;
use crate::catalogue::{COPY, SERIES};
use crate::data_dir::{self, DataDir};
use crate::error::StorageError;
use crate::exemplars::EXEMPLARS;
use crate::file::append_only::FileKind;
use crate::log::segment;
use crate::sealed::segment::PAGES;
use firn_model::env::Env;
use std::path::Path;

/// Adds a remark for each file with an unknown name.
pub(crate) fn check(env: &Env, dir: &DataDir, part: &mut VerifyPart) -> Result<(), StorageError> {
    let unknown = |folder: &Path, knows: &dyn Fn(&Path) -> bool, part: &mut VerifyPart| {
        let list = env.disk.list(folder);
        for name in default_if_missing(list.map_err(StorageError::io("list", folder)))? {
            if !knows(&name) {
                let is_left = name.extension().is_some_and(|suffix| suffix == "tmp");
                let what = if is_left {
                    "left by an interrupted write; not checked"
                } else {
                    "unknown file; not checked"
                };
                part.add_remark(&folder.join(name), what);
            }
        }
        Ok::<(), StorageError>(())
    };
    unknown(dir.root(), &data_dir::is_known, part)?;
    unknown(&dir.wal(), &segment::is_name, part)?;
    let of = |kinds: &'static [FileKind]| {
        move |name: &Path| kinds.iter().any(|kind| kind.parse(name).is_some())
    };
    unknown(&dir.pages(), &of(&[PAGES]), part)?;
    let is_block = |name: &Path| name.to_str().is_some_and(|n| n.parse::<BlockId>().is_ok());
    let knows = |name: &Path| BlockList::is_manifest_name(name) || is_block(name);
    unknown(&dir.blocks(), &knows, part)?;
    unknown(&dir.series(), &of(&[SERIES, COPY]), part)?;
    unknown(&dir.exemplars(), &of(&[EXEMPLARS]), part)
}
