//! The flush: moves late samples from the head into late blocks.
//!
//! ```text
//! due -> rows of all batches that every reader sees -> blocks, one for each window of data time
//!     -> manifest: blocks, and the log position up to which late samples are in blocks
//!     -> readers find the blocks -> the head drops the rows -> the log can be trimmed
//! ```
//!
//! A reader copies the head before it takes its view of the blocks, so it finds a row once or twice
//! and never misses it; a row found twice is the same in both. A crash before the manifest is
//! written leaves folders that it does not contain, and the rows in the log. If a crash happens
//! later, replay skips the rows.

use super::late::DueLateSeries;
use super::state::MaintenanceState;
use super::{Maintenance, PAUSE};
use crate::failpoints::{self, StoreFlaw};
use crate::import::{ImportBuffer, ImportTarget};
use crate::parts::options::StoreSyncMode;
use firn_model::error::Error;

impl Maintenance {
    /// Flushes the late samples if they are due.
    pub(super) fn flush_late_if_due(&self, state: &mut MaintenanceState) {
        let now = self.env.clock.monotonic();
        if now < state.flush_not_before || !self.is_late_flush_due(state) {
            return;
        }
        if let Err(e) = self.flush_late(state) {
            self.metrics.flush_failures.inc();
            tracing::error!(error = %e, "failed to flush late samples to blocks");
            state.flush_not_before = now.saturating_add(PAUSE);
        }
    }

    /// Moves the late samples that every reader sees into blocks.
    pub(crate) fn flush_late(&self, state: &mut MaintenanceState) -> Result<(), Error> {
        let (sequence, position) = self.head.watermark.visible_position();
        let reading = self.head.watermark.begin_read_visible_to_all();
        // An earlier reader is still copying, and blocks would show it rows that it must not see.
        if reading.sequence < sequence {
            return Ok(());
        }
        if self.options.sync != StoreSyncMode::Always {
            // A block survives a power loss, so all other parts of its batches must survive one
            // too.
            self.log.sync()?;
        }
        let mut taken = self.collect_late_series(sequence);
        if taken.is_empty() {
            return Ok(());
        }
        let mut import = ImportTarget::from_blocks(&self.env, &self.blocks).begin();
        self.build_flush_buffer(&taken, sequence)
            .flush(&mut import)?;
        if failpoints::has(StoreFlaw::DropsLateFirst) {
            self.drop_flushed_rows(state, std::mem::take(&mut taken), sequence);
        }
        failpoints::turn();
        let flushed = import.commit_late_through(position)?;
        drop(reading);
        failpoints::turn();
        self.drop_flushed_rows(state, taken, sequence);
        self.metrics.flushed_samples.add(flushed.samples);
        self.metrics.block_bytes_written.add(flushed.bytes);
        Ok(())
    }

    /// Returns the rows to flush. If several rows of a series have the same time, only the one that
    /// takes precedence is kept.
    fn build_flush_buffer(&self, taken: &[DueLateSeries], sequence: u64) -> ImportBuffer {
        let duplicates = self.options.duplicates;
        let mut buffer = ImportBuffer::new(self.options.cut_ms);
        for due in taken {
            let labels = self.head.index.series_labels(due.slot);
            let mut rows = due.rows(sequence).peekable();
            while let Some(mut stays) = rows.next() {
                while let Some(next) = rows.next_if(|(next, _)| next.time == stays.0.time) {
                    if duplicates.replaces(&stays.0.value, &next.0.value) {
                        stays = next;
                    }
                }
                let (row, start) = stays;
                buffer.push(labels.as_ref(), row.time, start, row.value.clone());
            }
        }
        buffer
    }
}
