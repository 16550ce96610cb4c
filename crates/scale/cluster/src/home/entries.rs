//! Entries of the list of a store as blocks of COMMITs, and back.

use super::known_blocks::id_of;
use crate::commit::{BlockState, CommittedBlock, CommittedBlockKind, CommittedFile};
use crate::engine::RestoredState;
use crate::object_name::BlockName;
use firn_storage::block::BlockId;
use firn_storage::home::{BlockEntry, BlockKind, RestoredHome};

/// The file with the metadata of a block. The size of a block does not include it.
const META: &str = "meta.json";

/// Returns the restored state as a store reads it.
pub(super) fn restored_home(restored: RestoredState) -> RestoredHome {
    let RestoredState { list, catalogue } = restored;
    RestoredHome {
        cut: list.cut,
        late_through: list.late_through,
        replay_from: list.replay_from.position,
        blocks: list.blocks.iter().map(entry_of).collect(),
        catalogue,
    }
}

/// Returns the listed block with an id.
pub(super) fn find_block(list: &BlockState, id: BlockId) -> Option<&CommittedBlock> {
    list.blocks.iter().find(|block| id_of(&block.name) == id)
}

/// Returns the block of a COMMIT for an entry.
pub(super) fn committed_block(
    entry: &BlockEntry,
    name: BlockName,
    files: Vec<CommittedFile>,
) -> CommittedBlock {
    CommittedBlock {
        name,
        kind: match entry.kind {
            BlockKind::Main => CommittedBlockKind::Main,
            BlockKind::Late => CommittedBlockKind::Late,
        },
        is_bad: entry.is_bad,
        sequence: entry.sequence,
        level: entry.level,
        range: entry.range,
        series: entry.series,
        samples: entry.samples,
        files,
    }
}

/// Returns the entry for a block of a COMMIT.
pub(super) fn entry_of(block: &CommittedBlock) -> BlockEntry {
    let counted = block.files.iter().filter(|file| file.name != META);
    BlockEntry {
        id: id_of(&block.name),
        kind: match block.kind {
            CommittedBlockKind::Main => BlockKind::Main,
            CommittedBlockKind::Late => BlockKind::Late,
        },
        is_bad: block.is_bad,
        sequence: block.sequence,
        level: block.level,
        range: block.range,
        bytes: counted.map(|file| file.bytes).sum(),
        series: block.series,
        samples: block.samples,
    }
}
