//! Opens the files of a data folder at startup and compares them with the manifest.
//!
//! All files are opened before anything is replayed: catalogue, pages, exemplars, then the log
//! after the positions that they cover. Invariant: damaged and missing files are reported before a
//! new manifest replaces the one that names them, or are passed to replay if only replay can
//! determine the affected times.

use crate::blocks::home::BlockHome;
use crate::catalogue::Catalogue;
use crate::damage::{Damage, DamageKind, DamageList};
use crate::data_dir::DataDir;
use crate::error::StorageError;
use crate::exemplars::ExemplarFile;
use crate::log::{LocalLog, LogOptions};
use crate::manifest::{self, Manifest};
use crate::parts::options::StoreOptions;
use crate::sealed::segments::{OpenedPageSegments, PageSegmentSet};
use crate::snapshot;
use firn_model::env::Env;
use firn_model::fingerprint::{FingerprintSeed, HashKeys, HashKind};
use firn_model::log::{DurableLog, LogPosition};
use std::sync::Arc;

/// A log that is not in the data folder, and the hash that its records were stored under.
pub(super) struct GivenLog {
    pub(super) log: Box<dyn DurableLog>,
    pub(super) keys: HashKeys,
    /// The place that keeps the blocks; `None` if the log keeps all records.
    pub(super) home: Option<Arc<dyn BlockHome>>,
}

/// The opened files of a data folder, as passed to replay.
pub(super) struct StoreFiles {
    pub(super) dir: DataDir,
    pub(super) catalogue: Catalogue,
    /// The page segments; their damage is already reported.
    pub(super) found: OpenedPageSegments,
    /// True if no page segment is damaged or missing.
    pub(super) has_all_pages: bool,
    pub(super) exemplars: ExemplarFile,
    pub(super) log: Box<dyn DurableLog>,
    /// Records missing at the start or the end of the log, if any.
    pub(super) missing_log: Option<Damage>,
    /// The keys of fingerprints, which are the same at each start on the same kind of processor.
    pub(super) keys: Arc<HashKeys>,
    /// The manifest that the open wrote.
    pub(super) manifest: Manifest,
}

impl StoreFiles {
    /// Opens the files of the folder, and upgrades the folder if it has an older format. Without a
    /// given log, opens the one in the folder.
    pub(super) fn open(
        env: &Env,
        mut dir: DataDir,
        options: &StoreOptions,
        given: Option<GivenLog>,
        damages: &DamageList,
    ) -> Result<Self, StorageError> {
        snapshot::remove_unfinished(env, &dir);
        let known = read_manifest(env, &dir, damages);
        let catalogue = Catalogue::open(env, &dir.series(), known.catalogue)?;
        let mut found =
            PageSegmentSet::open(env, &dir.pages(), options.page_segment_bytes, &known)?;
        let exemplars = ExemplarFile::open_newest(env, &dir.exemplars(), known.exemplars)?;
        let trimmed = catalogue.trimmed().max(known.trimmed);
        let opened = match given {
            Some(given) => OpenedLog::from_given(given),
            None => OpenedLog::open_local(env, &dir, options, trimmed, &known)?,
        };
        let OpenedLog { log, keys, missing } = opened;
        let of_pages = std::mem::take(&mut found.damages);
        let has_all_pages = of_pages.is_empty();
        let of_exemplars = exemplars.damages(known.exemplars);
        let others = catalogue.damages(known.catalogue).into_iter();
        for damage in others.chain(of_exemplars).chain(of_pages) {
            damages.report(damage);
        }
        let manifest = Manifest {
            trimmed,
            logged: log.positions().durable.max(known.logged),
            log: log.positions().growing,
            catalogue: catalogue.manifest_entry().unwrap_or(known.catalogue),
            exemplars: exemplars.manifest_entry().unwrap_or(known.exemplars),
            seed: Some(keys.seed()),
            segments: found.segments.entries(),
        };
        let manifest = match manifest.write(&*env.disk, dir.root()) {
            Ok(()) => manifest,
            // Readers need no space, and the first tick retries. Until then the loss of a segment
            // cannot be detected, as between any two manifests.
            Err(e) if e.is_disk_full() && dir.is_current() => {
                tracing::error!(
                    error = %e,
                    "failed to write the manifest at start: the disk is full"
                );
                Manifest {
                    seed: Some(keys.seed()),
                    ..known.clone()
                }
            }
            Err(e) => return Err(e),
        };
        dir.upgrade(env)?;
        Ok(Self {
            keys: Arc::new(keys),
            missing_log: missing,
            dir,
            catalogue,
            found,
            has_all_pages,
            exemplars,
            log,
            manifest,
        })
    }
}

/// A log with the properties that depend on where it is.
struct OpenedLog {
    log: Box<dyn DurableLog>,
    keys: HashKeys,
    /// Records missing at the start or the end of the log, if any.
    missing: Option<Damage>,
}

impl OpenedLog {
    fn from_given(given: GivenLog) -> Self {
        Self {
            log: given.log,
            keys: given.keys,
            missing: None,
        }
    }

    /// Opens the log in the folder. Positions up to `trimmed` are in pages and blocks; `known` is
    /// the manifest of the folder.
    fn open_local(
        env: &Env,
        dir: &DataDir,
        options: &StoreOptions,
        trimmed: LogPosition,
        known: &Manifest,
    ) -> Result<Self, StorageError> {
        let log_options = LogOptions {
            sync: options.sync.into(),
            segment_bytes: options.log_segment_bytes,
            start_after: trimmed,
            given: known.logged.max(known.log.previous()),
            ..LogOptions::default()
        };
        let log = LocalLog::open(env, &dir.wal(), log_options, Arc::default())?;
        let seed = known
            .seed
            .or(options.new_seed)
            .unwrap_or_else(|| FingerprintSeed::generate(&*env.rng));
        Ok(Self {
            missing: log.find_missing_records(trimmed, known),
            log: Box::new(log),
            keys: HashKeys::from_seed(HashKind::fastest(), seed),
        })
    }
}

/// Reads the manifest. Returns an empty one if it does not exist, which is reported as damage in a
/// folder of the current format.
fn read_manifest(env: &Env, dir: &DataDir, damages: &DamageList) -> Manifest {
    match Manifest::read(&*env.disk, dir.root()) {
        Ok(Some(manifest)) => return manifest,
        Ok(None) if dir.is_without_manifest() => {}
        Ok(None) => {
            let path = dir.root().join(manifest::NAME);
            let what = "the file is missing; other missing files cannot be detected".to_owned();
            damages.report(Damage::for_file(DamageKind::Manifest, &path, what));
        }
        Err(damage) => {
            damages.report(damage);
        }
    }
    Manifest::default()
}
