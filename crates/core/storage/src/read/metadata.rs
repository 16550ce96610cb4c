//! Metadata of metrics from the blocks.

use super::StoreReader;
use super::union::report_block_loss;
use crate::block::MetricMetadataSet;
use firn_model::error::Error;
use firn_model::metadata::MetadataBatch;
use firn_model::store::MetadataRequest;

impl StoreReader {
    /// Returns the newest metadata of each metric from any block, in order of names. If a block is
    /// damaged, reports the damage and returns the metadata of the other blocks.
    pub(crate) fn metadata(&self, request: MetadataRequest<'_>) -> Result<MetadataBatch, Error> {
        let mut found = MetadataBatch::default();
        if *request.tenant != self.parts.options.tenant {
            return Ok(found);
        }
        let (mut all, mut memory) = (
            MetricMetadataSet::default(),
            request.budget.create_reservation(),
        );
        let mut held = 0;
        let view = self.parts.blocks.view();
        for open in &view.blocks {
            request.cancel.check()?;
            if let Err(e) = open.block.read_metadata(request.metric, &mut all) {
                report_block_loss(&self.parts.damages, open, e)?;
            }
            // Twice, because the result contains them too.
            let bytes = 2 * all.memory_bytes();
            memory.grow(bytes.saturating_sub(held))?;
            held = held.max(bytes);
        }
        all.newest().for_each(|said| found.push(said));
        Ok(found)
    }
}
