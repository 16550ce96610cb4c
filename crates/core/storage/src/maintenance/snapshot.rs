//! A snapshot of a running store: a folder in the state that a crash at this moment would leave.
//!
//! ```text
//! maintenance is locked:   pages and closed segments of the log are linked; catalogue,
//!                          exemplars and the growing segment are opened; blocks are held
//! maintenance continues:   blocks are linked; the opened files are copied up to their length
//! ```
//!
//! Appends and queries continue throughout. The log is collected last, so it contains every batch
//! acknowledged before in full, and also the samples of later batches that are in pages. Files of
//! other components are collected before it, so that they refer only to records that it contains.
//! Without the log, the snapshot contains the sealed samples and no files of other components, and
//! its manifest declares that no more is missing.

use super::catalogue::CatalogueWriter;
use super::disk_space::DiskSpace;
use super::manifest::ManifestWriter;
use super::state::MaintenanceState;
use crate::blocks::Blocks;
use crate::data_dir::DataDir;
use crate::error::StorageError;
use crate::failpoints::{self, StoreFlaw};
use crate::manifest::{Manifest, PageSegmentState};
use crate::parts::options::StoreOptions;
use crate::sealed::segment::PAGES;
use crate::snapshot::SnapshotBuilder;
use crate::sync::{Mutex, lock};
use firn_model::env::Env;
use firn_model::error::Error;
use firn_model::log::{DurableLog, LogPosition};

/// Writes snapshots of the data folder.
#[derive(Clone, Copy)]
pub(crate) struct SnapshotWriter<'a> {
    pub(super) options: &'a StoreOptions,
    pub(super) env: &'a Env,
    pub(super) dir: &'a DataDir,
    pub(super) log: &'a dyn DurableLog,
    pub(super) blocks: &'a Blocks,
    pub(super) catalogue: CatalogueWriter<'a>,
    pub(super) manifest: ManifestWriter<'a>,
    pub(super) space: DiskSpace<'a>,
}

impl SnapshotWriter<'_> {
    /// Creates the snapshot `name`, without the log if `skips_head`. It is durable on return. Locks
    /// the state of `maintenance` only while it collects the files.
    pub(super) fn write(
        &self,
        maintenance: &Mutex<MaintenanceState>,
        name: &str,
        skips_head: bool,
    ) -> Result<(), Error> {
        let start = self.env.clock.monotonic();
        let mut begun = SnapshotBuilder::begin(self.env, self.dir, name)?;
        let mut state = lock(maintenance);
        let (blocks, _held) = self.blocks.list_and_view();
        let manifest = self.collect_files(&mut begun, &mut state, skips_head)?;
        drop(state);
        begun.link_blocks(&blocks)?;
        let bytes = begun.bytes_to_copy();
        self.space.check_free_beside_log(bytes)?;
        failpoints::turn();
        begun.finish(Some(&manifest), &blocks)?;
        let took = self.env.clock.monotonic().saturating_sub(start);
        let (blocks, took_ms) = (blocks.blocks.len(), took.as_millis());
        tracing::info!(
            name,
            skips_head,
            blocks,
            copied_bytes = bytes,
            %took_ms,
            "created a snapshot"
        );
        Ok(())
    }

    /// Adds all files of this moment except blocks to `begun`. Returns the manifest of their
    /// contents.
    fn collect_files(
        &self,
        begun: &mut SnapshotBuilder<'_>,
        state: &mut MaintenanceState,
        skips_head: bool,
    ) -> Result<Manifest, StorageError> {
        if failpoints::has(StoreFlaw::CopiesLogFirst) && !skips_head {
            self.collect_log(begun)?;
        }
        failpoints::turn();
        // Complete segments are linked and need no copy.
        if let Err(e) = state.segments.finish() {
            state.segments.abandon();
            return Err(e);
        }
        if state.catalogue.needs_whole() {
            self.catalogue.write(state, state.trimmed_position())?;
        }
        let mut manifest = self.manifest.build(state);
        // A file that does not exist is not missing in a copy either.
        manifest.catalogue = state.catalogue.manifest_entry().unwrap_or_default();
        manifest.exemplars = state.exemplars.manifest_entry().unwrap_or_default();
        for entry in &manifest.segments {
            let path = PAGES.path(&self.dir.pages(), entry.number);
            match entry.state {
                PageSegmentState::Complete => begun.link(&path)?,
                PageSegmentState::Growing => begun.copy(&path, entry.bytes)?,
                PageSegmentState::Lost => {}
            }
        }
        for (path, bytes) in state.catalogue.files().chain(state.exemplars.files()) {
            begun.copy(path, bytes)?;
        }
        failpoints::turn();
        if !skips_head {
            for inside in &self.options.beside {
                begun.copy_component_file(inside)?;
            }
            if !failpoints::has(StoreFlaw::CopiesLogFirst) {
                self.collect_log(begun)?;
            }
        } else {
            // No position is assigned twice, because pages contain the positions that they
            // cover.
            let last = self.log.positions().last;
            manifest.trimmed = last;
            manifest.logged = last;
            manifest.log = LogPosition(0);
        }
        Ok(manifest)
    }

    /// Adds the log to a snapshot: complete segments as links, the growing one as a copy.
    fn collect_log(&self, begun: &mut SnapshotBuilder<'_>) -> Result<(), StorageError> {
        for file in self.log.files() {
            failpoints::turn();
            if file.is_complete {
                begun.link(&file.path)?
            } else {
                begun.copy(&file.path, file.bytes)?
            }
        }
        Ok(())
    }
}
