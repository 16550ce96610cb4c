//! A snapshot of a store that runs: its folder as a crash at this moment would leave it.
//!
//! ```text
//! maintenance stands still:  pages and closed segments of the log are linked; catalogue,
//!                            exemplars and the growing segment are opened; blocks are held
//! it goes on:                blocks are linked; what was opened is copied up to its length
//! ```
//!
//! Appends and queries go on throughout. The log is taken last: it has every batch that was
//! acknowledged before, whole, and what pages have of later ones is in it too. Files of other rooms
//! are taken before it, so that they speak of nothing that it does not have. Without the log the
//! snapshot has what is sealed and nothing of other rooms, and its manifest says that no more is
//! missing.

use super::Maintenance;
use super::state::State;
use crate::error::StorageError;
use crate::failpoints::{self, Flaw};
use crate::manifest::{Manifest, SegmentState};
use crate::sealed::segment::PAGES;
use crate::snapshot::Unfinished;
use crate::sync::lock;
use firn_model::error::Error;
use firn_model::log::Position;

impl Maintenance {
    /// Makes the snapshot `name`; without the log if `skips_head`. It is durable on return.
    pub(crate) fn take_snapshot(&self, name: &str, skips_head: bool) -> Result<(), Error> {
        let start = self.env.clock.monotonic();
        let mut begun = Unfinished::begin(&self.env, &self.dir, name)?;
        let mut state = lock(&self.state);
        let (blocks, _held) = self.blocks.list_and_view();
        let manifest = self.gather(&mut begun, &mut state, skips_head)?;
        drop(state);
        begun.link_blocks(&blocks)?;
        let bytes = begun.bytes_to_copy();
        self.look_for_room(bytes.saturating_add(self.reserve_bytes(false)))?;
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

    /// Gives `begun` all files of this moment but for blocks; returns what they hold.
    fn gather(
        &self,
        begun: &mut Unfinished<'_>,
        state: &mut State,
        skips_head: bool,
    ) -> Result<Manifest, StorageError> {
        if failpoints::has(Flaw::CopiesLogFirst) && !skips_head {
            self.gather_log(begun)?;
        }
        failpoints::turn();
        // What is complete need not be copied.
        if let Err(e) = state.segments.finish() {
            state.segments.abandon();
            return Err(e);
        }
        if state.catalogue.needs_whole() {
            self.write_catalogue(state, state.trimmed())?;
        }
        let mut manifest = self.manifest(state);
        // What is not there is not missing from a copy either.
        manifest.catalogue = state.catalogue.place().unwrap_or_default();
        manifest.exemplars = state.exemplars.place().unwrap_or_default();
        for entry in &manifest.segments {
            let path = PAGES.path(&self.dir.pages(), entry.number);
            match entry.state {
                SegmentState::Complete => begun.link(&path)?,
                SegmentState::Growing => begun.copy(&path, entry.bytes)?,
                SegmentState::Lost => {}
            }
        }
        for (path, bytes) in state.catalogue.files().chain(state.exemplars.files()) {
            begun.copy(path, bytes)?;
        }
        failpoints::turn();
        match skips_head {
            false => {
                for inside in &self.options.beside {
                    begun.take_along(inside)?;
                }
                if !failpoints::has(Flaw::CopiesLogFirst) {
                    self.gather_log(begun)?;
                }
            }
            true => {
                // No position is given twice: pages say which ones they cover.
                let last = self.log.positions().last;
                manifest.trimmed = last;
                manifest.logged = last;
                manifest.log = Position(0);
            }
        }
        Ok(manifest)
    }

    fn gather_log(&self, begun: &mut Unfinished<'_>) -> Result<(), StorageError> {
        for file in self.log.files() {
            failpoints::turn();
            match file.is_complete {
                true => begun.link(&file.path)?,
                false => begun.copy(&file.path, file.bytes)?,
            }
        }
        Ok(())
    }
}
