//! The workers of maintenance: this file lists the parts of the store that each of them uses.
//!
//! A worker borrows its parts and has no state of its own; the progress of its work is in
//! [`super::state`] or in the state of the compaction.

use super::catalogue::CatalogueWriter;
use super::compaction::Compactor;
use super::cut::{CutSources, Cutter};
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
}

impl<'a> MaintenanceWorkers<'a> {
    /// Returns the workers of the store with these parts.
    pub(super) fn new(parts: &'a StoreParts) -> Self {
        let StoreParts {
            options,
            env,
            dir,
            head,
            sealed,
            blocks,
            metrics,
            damages,
            ..
        } = parts;
        let log = &*parts.log;
        let policy = parts.retention_policy();
        let space = DiskSpace {
            disk: &*env.disk,
            dir,
            log,
            trimming: parts.trimming,
        };
        let catalogue = CatalogueWriter { head, metrics };
        let manifest = ManifestWriter { env, dir, log };
        let sealer = Sealer {
            options,
            clock: &*env.clock,
            log,
            head,
            policy,
            pages: PageWriter {
                sealed,
                catalogue,
                space,
                metrics,
            },
            metrics,
            damages,
        };
        Self {
            sealer,
            flusher: LateFlusher {
                options,
                env,
                log,
                head,
                blocks,
                metrics,
            },
            cutter: Cutter {
                options,
                env,
                head,
                blocks,
                sources: CutSources {
                    head,
                    sealed,
                    exemplars: &parts.exemplars,
                    metadata: &parts.learn_metadata,
                    damages,
                },
                sealer,
                space,
                metrics,
            },
            compactor: Compactor {
                options,
                env: blocks.env(),
                blocks,
                retaining: &parts.retaining,
                space,
                metrics,
                damages,
            },
            remover: ExpiredDataRemover {
                options,
                env,
                sealed,
                policy,
                manifest,
                space,
                metrics,
            },
            manifest,
            trimmer: LogTrimmer {
                log,
                trimming: parts.trimming,
                blocks,
                journal: &parts.journal,
                exemplars: &parts.exemplars,
                catalogue,
                manifest,
                metrics,
            },
            sweeper: Sweeper {
                trimming: parts.trimming,
                head,
                sealed,
                policy,
                metrics,
            },
            snapshots: SnapshotWriter {
                options,
                env,
                dir,
                log,
                blocks,
                catalogue,
                manifest,
                space,
            },
        }
    }
}
