//! The blocks whose files may be read: those of the current list, of the restored one, and removed
//! ones that are not deleted yet.

use crate::commit::CommittedBlock;
use crate::object_name::BlockName;
use firn_model::sync::lock;
use firn_storage::block::BlockId;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The blocks by their id.
#[derive(Debug, Default)]
pub(super) struct KnownBlocks(Mutex<BTreeMap<BlockId, CommittedBlock>>);

impl KnownBlocks {
    /// Adds blocks. A later upload of a block replaces an earlier one.
    pub(super) fn add(&self, blocks: impl IntoIterator<Item = CommittedBlock>) {
        let blocks = blocks.into_iter();
        let by_id = blocks.map(|block| (id_of(&block.name), block));
        lock(&self.0).extend(by_id);
    }

    pub(super) fn find(&self, id: BlockId) -> Option<CommittedBlock> {
        lock(&self.0).get(&id).cloned()
    }

    /// Removes an upload of a block, unless a later one has replaced it.
    pub(super) fn remove(&self, name: &BlockName) {
        let mut blocks = lock(&self.0);
        let id = id_of(name);
        if blocks.get(&id).is_some_and(|block| block.name == *name) {
            blocks.remove(&id);
        }
    }
}

/// Returns the id of a block, which is a part of its name.
pub(super) fn id_of(name: &BlockName) -> BlockId {
    BlockId::from_bytes(name.block.to_be_bytes())
}
