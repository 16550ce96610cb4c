//! The objects of a block: its files, large ones in parts.
//!
//! ```text
//! file of 40 MiB = <file> (16 MiB) | <file>.0001 (16 MiB) | <file>.0002 (8 MiB)
//! ```
//!
//! A part is small enough for one request of a slow store, and its place follows from the offset
//! alone. Invariant: the parts of a file have [`PART_BYTES`] bytes except the last one; an empty
//! file has one empty part.

use crate::commit::CommittedBlock;
use crate::ids::PartitionId;
use crate::object_name::{BlockName, ObjectName};
use firn_bucket::ObjectKey;

/// Maximum size of an object of a block, which is a part of the format.
pub const PART_BYTES: u64 = if cfg!(test) { 32 } else { 16 << 20 };

/// An object of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockObject {
    pub(crate) key: ObjectKey,
    /// The offset of its first byte in the file.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Returns the objects of a file of `bytes` bytes, in the order of its bytes.
pub(crate) fn objects_of_file(
    partition: PartitionId,
    block: &BlockName,
    file: &str,
    bytes: u64,
) -> Vec<BlockObject> {
    let object = |part: u64| {
        let offset = part * PART_BYTES;
        let name = ObjectName::Block {
            partition,
            block: block.clone(),
            file: part_name(file, part),
        };
        BlockObject {
            key: ObjectKey::new(&name.to_string()).expect("names of objects are keys"),
            offset,
            bytes: PART_BYTES.min(bytes - offset),
        }
    };
    (0..bytes.div_ceil(PART_BYTES).max(1)).map(object).collect()
}

fn part_name(file: &str, part: u64) -> String {
    if part == 0 {
        file.to_owned()
    } else {
        format!("{file}.{part:04}")
    }
}

/// Returns the objects of all files of a block.
pub(crate) fn objects_of_block(partition: PartitionId, block: &CommittedBlock) -> Vec<BlockObject> {
    let files = block.files.iter();
    let objects =
        files.flat_map(|file| objects_of_file(partition, &block.name, &file.name, file.bytes));
    objects.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::tenant::TenantId;

    #[test]
    fn file_is_divided_into_parts_of_equal_size_but_the_last() {
        let name = BlockName {
            tenant: TenantId::anonymous(),
            block: 0,
            upload: 0,
        };
        let check = |bytes: u64, expected: &[(&str, u64, u64)]| {
            let objects = objects_of_file(PartitionId(0), &name, "index", bytes);
            let found: Vec<(&str, u64, u64)> = objects
                .iter()
                .map(|o| {
                    let file = o.key.as_str().rsplit('/').next().unwrap_or_default();
                    (file, o.offset, o.bytes)
                })
                .collect();
            assert_eq!(found, expected, "{bytes} bytes");
        };
        check(0, &[("index", 0, 0)]);
        check(32, &[("index", 0, 32)]);
        check(33, &[("index", 0, 32), ("index.0001", 32, 1)]);
        check(
            70,
            &[
                ("index", 0, 32),
                ("index.0001", 32, 32),
                ("index.0002", 64, 6),
            ],
        );
    }
}
