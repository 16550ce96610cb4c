//! Repairs a data folder: copies damaged files to a separate folder and replaces them with their
//! intact parts.
//!
//! ```text
//! verify -> confirm -> copy damaged files to set-aside/ -> MANIFEST records the losses
//!   -> damaged blocks are removed from their manifest
//!   -> pages, exemplars, catalogue: rewritten, put in place by rename
//!   -> the store is opened and closed: the WAL becomes pages -> MANIFEST lists the actual files
//! ```
//!
//! No file is removed before a complete copy of it is durable. After every step, the folder is in a
//! state from which a repair can start again. Samples that a page lost and the WAL still contains
//! are written back into the page. The store adds the remaining samples of the WAL when it is
//! opened, because until the end the manifest records that something is lost. Files that cannot be
//! read because of a disk fault are not repaired, since they cannot be copied.

mod aside;
mod blocks;
mod from_log;
mod records;
mod rewrite;
mod segment;
#[cfg(test)]
mod tests;

use crate::catalogue::{COPY, SERIES};
use crate::damage::DamageKind;
use crate::data_dir::DataDir;
use crate::error::StorageError;
use crate::exemplars::EXEMPLARS;
use crate::manifest::{Manifest, PageSegmentEntry, PageSegmentState};
use crate::sealed::segment::PAGES;
use crate::store::{Store, StoreOptions};
use crate::verify::slots::SeriesSlotSet;
use crate::verify::{self, VerifyReport};
use firn_model::env::{Env, OpenMode};
use firn_model::error::Error;
use firn_model::log::LogPosition;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The result of a repair.
#[derive(Debug)]
pub enum RepairOutcome {
    /// Nothing was damaged.
    Whole(VerifyReport),
    /// The operator declined the repair; nothing was changed.
    Declined,
    /// The damaged files were copied and replaced.
    Repaired {
        /// Folder with the copies, at the same relative paths as in the data folder.
        set_aside: PathBuf,
        /// Result of the verification after the repair.
        report: VerifyReport,
    },
}

/// The callback that decides from the result of the verification whether to repair the folder.
pub type RepairConfirmation<'a> = dyn FnMut(&VerifyReport) -> bool + 'a;

/// Repairs the data folder at `root`, which no other process may use in the meantime. Copies the
/// damaged files to the folder `name` in `set-aside`, with a number appended if that exists
/// already.
pub fn repair(
    env: &Env,
    root: &Path,
    name: &str,
    confirm: &mut RepairConfirmation<'_>,
) -> Result<RepairOutcome, Error> {
    let dir = DataDir::hold(env, root)?;
    let (found, named) = verify::verify_held(env, &dir)?;
    if found.is_whole() {
        return Ok(RepairOutcome::Whole(found));
    }
    if let Some(finding) = found.findings.iter().find(|finding| finding.is_unreadable) {
        return Err(Error::from(StorageError::NotRepairable {
            path: finding.damage.file.clone(),
        }));
    }
    if !confirm(&found) {
        return Ok(RepairOutcome::Declined);
    }
    let mut broken = broken_files(&found);
    let of_blocks = blocks::BlockRepairPlan::plan_repair(env, &dir, &found)?;
    broken.extend(of_blocks.iter().flat_map(|plan| plan.files(env)));
    let set_aside = aside::copy(env, &dir, name, &broken)?;
    if let Some(plan) = of_blocks {
        plan.apply(env)?;
    }
    let rebuilt = rebuild_pages(env, &dir, &found, named.as_ref())?;
    rebuild_records(env, &dir, &found)?;
    drop(dir);
    seal_log(env, root, found.exemplars)?;
    let dir = DataDir::hold(env, root)?;
    rebuild_manifest(env, &dir, rebuilt)?;
    let (report, _) = verify::verify_held(env, &dir)?;
    Ok(RepairOutcome::Repaired { set_aside, report })
}

/// Returns the files that are damaged or missing.
fn broken_files(found: &VerifyReport) -> BTreeSet<PathBuf> {
    let files = found.findings.iter().map(|finding| &finding.damage.file);
    files.cloned().collect()
}

/// Rewrites the catalogue and the exemplars. Pages must be rewritten before them: a rewritten
/// catalogue no longer reveals that series have lost their labels.
fn rebuild_records(env: &Env, dir: &DataDir, found: &VerifyReport) -> Result<(), StorageError> {
    let has = |kind| found.findings.iter().any(|f| f.damage.kind == kind);
    if has(DamageKind::Exemplars) {
        records::rewrite(env, &dir.exemplars(), &[EXEMPLARS], DamageKind::Exemplars)?;
    }
    if has(DamageKind::Catalogue) {
        records::rewrite(env, &dir.series(), &[SERIES, COPY], DamageKind::Catalogue)?;
    }
    Ok(())
}

/// Rewrites damaged segments of pages without the series that are not in `named`, and returns their
/// new manifest entries.
fn rebuild_pages(
    env: &Env,
    dir: &DataDir,
    found: &VerifyReport,
    named: Option<&SeriesSlotSet>,
) -> Result<Vec<PageSegmentEntry>, StorageError> {
    let manifest = Manifest::read(&*env.disk, dir.root()).ok().flatten();
    let mut manifest = manifest.unwrap_or_default();
    let numbers: Vec<LogPosition> = PAGES
        .list(env, &dir.pages())?
        .into_iter()
        .filter(|number| {
            let path = PAGES.path(&dir.pages(), *number);
            found.findings.iter().any(|f| f.damage.file == path)
        })
        .collect();
    if numbers.is_empty() {
        return Ok(Vec::new());
    }
    // From here on, a start takes into account that the pages lack samples which the WAL may
    // contain.
    for number in &numbers {
        name_as_lost(&mut manifest, *number);
    }
    manifest.write(&*env.disk, dir.root())?;
    let log = verify::log_segments(env, dir)?;
    let mut entries = Vec::new();
    for number in numbers {
        entries.extend(segment::rebuild(
            env,
            &dir.pages(),
            number,
            &manifest,
            named,
            &log,
        )?);
    }
    Ok(entries)
}

fn name_as_lost(manifest: &mut Manifest, number: LogPosition) {
    let is_lost = |entry: &PageSegmentEntry| entry.state == PageSegmentState::Lost;
    let mut of_number = manifest.segments.iter().filter(|e| e.number == number);
    if of_number.any(is_lost) {
        return;
    }
    let known = manifest.segment(number).cloned();
    let known = known.unwrap_or(PageSegmentEntry {
        number,
        state: PageSegmentState::Lost,
        bytes: 0,
        crc: None,
        pages: 0,
        samples: None,
        range: None,
    });
    manifest.segments.push(PageSegmentEntry {
        state: PageSegmentState::Lost,
        crc: None,
        ..known
    });
    manifest.segments.sort_by_key(|entry| entry.number);
}

/// Opens and closes the store, which moves all samples of the WAL into pages and empties the WAL.
fn seal_log(env: &Env, root: &Path, exemplars: u64) -> Result<(), Error> {
    let options = StoreOptions {
        // Retention is applied later by a server with the operator's settings.
        retention_ms: i64::MAX,
        exemplars_max: usize::try_from(exemplars).unwrap_or(usize::MAX),
        ..StoreOptions::new(root)
    };
    Store::open(env.clone(), options)?.close()
}

/// Updates the manifest to list exactly the files that exist.
fn rebuild_manifest(
    env: &Env,
    dir: &DataDir,
    rebuilt: Vec<PageSegmentEntry>,
) -> Result<(), StorageError> {
    let read = Manifest::read(&*env.disk, dir.root()).ok().flatten();
    let mut manifest = read.unwrap_or_default();
    let there = PAGES.list(env, &dir.pages())?;
    manifest
        .segments
        .retain(|entry| entry.state != PageSegmentState::Lost && there.contains(&entry.number));
    for entry in rebuilt {
        let is_it = |known: &&mut PageSegmentEntry| known.number == entry.number;
        if let Some(known) = manifest.segments.iter_mut().find(is_it) {
            *known = entry;
        }
    }
    let has = |path: PathBuf| {
        let opened = env.disk.open(&path, OpenMode::Read);
        opened.is_ok()
    };
    if !has(SERIES.path(&dir.series(), manifest.catalogue.number)) {
        manifest.catalogue = Default::default();
    }
    if !has(EXEMPLARS.path(&dir.exemplars(), manifest.exemplars.number)) {
        manifest.exemplars = Default::default();
    }
    manifest.write(&*env.disk, dir.root())
}
