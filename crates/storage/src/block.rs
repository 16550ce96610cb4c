//! Blocks: many series over a range of data time, in the order of their metrics, with an index of
//! their own; immutable.
//!
//! ```text
//! BlockWriter::push(labels, columns)* -> finish -> blocks/<ulid>/{meta.json, index, data-000..}
//! Block::open -> lookup(matchers) -> ordinals -> reader().read(ordinal, range)
//!                                             -> labels(ordinals)
//! ```
//!
//! `docs/format/block.md` draws the bytes. A series is known by its *ordinal*, its number in the
//! block. What is read are units of some 64 KiB with a checksum each, kept in one cache for all
//! blocks; the rest of a block in memory is where its units are. A page of samples is such a unit;
//! its columns are those of `crate::page`, with the number of a time column of the block in place
//! of times.
//!
//! Invariant: the bytes of a block follow from what was pushed and what its maker says of it.
//! Reading bytes that were changed gives an error that names file and offset, or what was written;
//! it never panics, and allocates by no length that was not checked.

mod cache;
mod cached;
mod columns;
mod data_page;
mod exemplars;
mod file;
mod found_meta;
mod id;
mod index;
mod labels;
mod layout;
mod lookup;
mod meta;
mod metadata;
mod names;
mod numbers;
mod order;
mod pages;
mod planned;
mod postings;
mod prefetch;
mod reader;
mod restore;
mod series;
mod series_labels;
mod tail;
mod terms;
mod times;
mod unit;
mod verify;
mod writer;

pub use cache::BlockCache;
pub use columns::{BlockColumn, BlockReader};
pub use id::{BlockId, NotABlockId};
pub(crate) use layout::{INDEX, INDEX_COPY};
pub(crate) use meta::META;
pub use meta::{BlockMeta, BlockShard, FileMeta};
pub use metadata::Sayings;
pub use order::block_order;
pub use reader::Block;
pub use series_labels::LabelsReader;
pub use verify::BlockFault;
pub(crate) use writer::remove_folder;
pub use writer::{BlockWriter, Source};
