//! The manifest of the data folder: a list of the files that maintenance writes, which is always
//! updated before a file that it lists is removed.

use super::state::{MaintenanceState, PAUSE};
use crate::data_dir::DataDir;
use crate::error::StorageError;
use crate::manifest::{Manifest, PageSegmentState};
use firn_model::env::Env;
use firn_model::log::{DurableLog, LogPosition};

/// Writes the manifest of the current files.
#[derive(Clone, Copy)]
pub(crate) struct ManifestWriter<'a> {
    pub(super) env: &'a Env,
    pub(super) dir: &'a DataDir,
    pub(super) log: &'a dyn DurableLog,
}

impl ManifestWriter<'_> {
    /// Writes the manifest if files were added, completed or replaced since the last time.
    pub(super) fn update(&self, state: &mut MaintenanceState) {
        let known = |manifest: &Manifest| {
            let segments = manifest.segments.iter();
            let states = segments.map(|entry| (entry.number, entry.state));
            let states: Vec<(LogPosition, PageSegmentState)> = states.collect();
            (manifest.log, manifest.catalogue.number, states)
        };
        let now = self.env.clock.monotonic();
        if now < state.manifest_not_before || known(&self.build(state)) == known(&state.manifest) {
            return;
        }
        if let Err(e) = self.write(state) {
            tracing::error!(error = %e, "failed to write the manifest");
            state.manifest_not_before = now.saturating_add(PAUSE);
        }
    }

    /// Returns the manifest of the current files. Positions in it never move back, and damaged
    /// files keep their entries.
    pub(super) fn build(&self, state: &MaintenanceState) -> Manifest {
        let before = &state.manifest;
        Manifest {
            trimmed: state.trimmed_position().max(before.trimmed),
            logged: self.log.positions().durable.max(before.logged),
            log: self.log.positions().growing,
            // A damaged file remains in the manifest until it is written again.
            catalogue: state.catalogue.manifest_entry().unwrap_or(before.catalogue),
            exemplars: state.exemplars.manifest_entry().unwrap_or(before.exemplars),
            seed: before.seed,
            segments: state.segments.entries(),
        }
    }

    /// Writes the manifest of the current files if it has changed since the last write.
    pub(super) fn write(&self, state: &mut MaintenanceState) -> Result<(), StorageError> {
        let manifest = self.build(state);
        self.replace(state, manifest)
    }

    /// Writes the manifest of a store that is about to remove its log.
    pub(super) fn write_without_log(
        &self,
        state: &mut MaintenanceState,
    ) -> Result<(), StorageError> {
        let manifest = Manifest {
            log: LogPosition(0),
            ..self.build(state)
        };
        self.replace(state, manifest)
    }

    /// Writes `manifest` and keeps it in the state, unless it is equal to the last one.
    fn replace(
        &self,
        state: &mut MaintenanceState,
        manifest: Manifest,
    ) -> Result<(), StorageError> {
        if manifest != state.manifest {
            manifest.write(&*self.env.disk, self.dir.root())?;
            state.manifest = manifest;
        }
        Ok(())
    }
}
