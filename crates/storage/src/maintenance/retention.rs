//! Retention of blocks: by time and by size. The manifest forgets them, then their folders go.

use super::Maintenance;

impl Maintenance {
    /// Takes blocks that left the retention out of the manifest, and removes the folders of those
    /// that no reader holds.
    pub(super) fn drop_old_blocks(&self) {
        let cutoff = self.cutoff();
        let list = self.blocks.list();
        if list.blocks.iter().any(|block| block.range.max < cutoff) {
            let dropped = self.blocks.commit(|list| {
                list.blocks.retain(|block| block.range.max >= cutoff);
            });
            if let Err(e) = dropped {
                tracing::error!(error = %e, "drop blocks that left the retention");
            }
        }
        self.blocks.remove_left();
    }
}
