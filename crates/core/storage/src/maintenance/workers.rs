//! The workers of maintenance: this file lists the parts of the store that each of them uses.
//!
//! A worker borrows its parts and has no state of its own; the progress of its work is in
//! [`super::state`] or in the state of the compaction.

use super::catalogue::CatalogueWriter;
use super::compaction::Compactor;
use super::cut::{CutSources, Cutter};
use super::deletion::SeriesDeleter;
use super::disk_space::DiskSpace;
use super::flush::LateFlusher;
use super::manifest::ManifestWriter;
use super::retention::ExpiredDataRemover;
use super::seal::{PageWriter, Sealer};
use super::snapshot::SnapshotWriter;
use super::sweep::Sweeper;
use super::trim::LogTrimmer;
use crate::parts::StoreParts;

/// The workers of one store. Created for a tick or another task of maintenance.
#[derive(Clone, Copy)]
pub(crate) struct MaintenanceWorkers<'a> {
    pub(crate) sealer: Sealer<'a>,
    pub(crate) flusher: LateFlusher<'a>,
    pub(crate) cutter: Cutter<'a>,
    pub(crate) compactor: Compactor<'a>,
    pub(crate) remover: ExpiredDataRemover<'a>,
    pub(crate) manifest: ManifestWriter<'a>,
    pub(crate) trimmer: LogTrimmer<'a>,
    pub(crate) sweeper: Sweeper<'a>,
    pub(crate) snapshots: SnapshotWriter<'a>,
    pub(crate) deleter: SeriesDeleter<'a>,
}

impl<'a> MaintenanceWorkers<'a> {
    /// Returns the workers of the store with these parts.
    pub(super) fn new(parts: &'a StoreParts) -> Self {
        let manifest = ManifestWriter {
            env: &parts.env,
            dir: &parts.dir,
            log: &*parts.log,
        };
        let flusher = build_flusher(parts);
        let cutter = build_cutter(parts);
        Self {
            sealer: build_sealer(parts),
            flusher,
            cutter,
            compactor: Compactor {
                options: &parts.options,
                env: parts.blocks.env(),
                blocks: &parts.blocks,
                policy: parts.retention_policy(),
                space: disk_space(parts),
                metrics: &parts.metrics,
                damages: &parts.damages,
            },
            remover: ExpiredDataRemover {
                options: &parts.options,
                env: &parts.env,
                sealed: &parts.sealed,
                policy: parts.retention_policy(),
                manifest,
                space: disk_space(parts),
                metrics: &parts.metrics,
            },
            manifest,
            trimmer: LogTrimmer {
                log: &*parts.log,
                trimming: parts.trimming,
                blocks: &parts.blocks,
                journal: &parts.journal,
                exemplars: &parts.exemplars,
                catalogue: catalogue_writer(parts),
                manifest,
                metrics: &parts.metrics,
            },
            sweeper: Sweeper {
                trimming: parts.trimming,
                head: &parts.head,
                sealed: &parts.sealed,
                policy: parts.retention_policy(),
                metrics: &parts.metrics,
            },
            snapshots: build_snapshot_writer(parts, manifest),
            deleter: SeriesDeleter {
                options: &parts.options,
                log: &*parts.log,
                head: &parts.head,
                sealed: &parts.sealed,
                blocks: &parts.blocks,
                cutter,
                flusher,
            },
        }
    }
}

fn build_flusher(parts: &StoreParts) -> LateFlusher<'_> {
    LateFlusher {
        options: &parts.options,
        env: &parts.env,
        log: &*parts.log,
        head: &parts.head,
        blocks: &parts.blocks,
        metrics: &parts.metrics,
    }
}

fn disk_space(parts: &StoreParts) -> DiskSpace<'_> {
    DiskSpace {
        disk: &*parts.env.disk,
        dir: &parts.dir,
        log: &*parts.log,
        trimming: parts.trimming,
    }
}

fn catalogue_writer(parts: &StoreParts) -> CatalogueWriter<'_> {
    CatalogueWriter {
        head: &parts.head,
        metrics: &parts.metrics,
    }
}

fn build_sealer(parts: &StoreParts) -> Sealer<'_> {
    Sealer {
        options: &parts.options,
        clock: &*parts.env.clock,
        log: &*parts.log,
        head: &parts.head,
        policy: parts.retention_policy(),
        pages: PageWriter {
            sealed: &parts.sealed,
            catalogue: catalogue_writer(parts),
            space: disk_space(parts),
            metrics: &parts.metrics,
        },
        metrics: &parts.metrics,
        damages: &parts.damages,
    }
}

fn build_cutter(parts: &StoreParts) -> Cutter<'_> {
    Cutter {
        options: &parts.options,
        env: &parts.env,
        head: &parts.head,
        blocks: &parts.blocks,
        sources: CutSources {
            head: &parts.head,
            sealed: &parts.sealed,
            exemplars: &parts.exemplars,
            metadata: &parts.learn_metadata,
            damages: &parts.damages,
        },
        sealer: build_sealer(parts),
        space: disk_space(parts),
        metrics: &parts.metrics,
    }
}

fn build_snapshot_writer<'a>(
    parts: &'a StoreParts,
    manifest: ManifestWriter<'a>,
) -> SnapshotWriter<'a> {
    SnapshotWriter {
        options: &parts.options,
        env: &parts.env,
        dir: &parts.dir,
        log: &*parts.log,
        blocks: &parts.blocks,
        catalogue: catalogue_writer(parts),
        manifest,
        space: disk_space(parts),
    }
}
