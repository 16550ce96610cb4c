//! What was said of metrics, as the blocks have it.

use super::Reader;
use super::union::lose_in;
use crate::block::Sayings;
use firn_model::error::Error;
use firn_model::metadata::MetadataBatch;
use firn_model::store::MetadataRequest;

impl Reader {
    /// The newest that any block says of each metric, by name. Damage costs what lies in it: it is
    /// reported, and what other blocks say stays.
    pub(crate) fn metadata(&self, request: MetadataRequest<'_>) -> Result<MetadataBatch, Error> {
        let mut found = MetadataBatch::default();
        if *request.tenant != self.options.tenant {
            return Ok(found);
        }
        let (mut all, mut memory) = (Sayings::default(), request.budget.hold());
        let mut held = 0;
        let view = self.blocks.view();
        for open in &view.blocks {
            request.cancel.check()?;
            if let Err(e) = open.block.read_metadata(request.metric, &mut all) {
                lose_in(&self.damages, open, e)?;
            }
            // Twice: the answer has them too.
            let bytes = 2 * all.memory_bytes();
            memory.grow(bytes.saturating_sub(held))?;
            held = held.max(bytes);
        }
        all.newest().for_each(|said| found.push(said));
        Ok(found)
    }
}
