//! Blocks: immutable sets of series over a range of data time, sorted by metric and stored with
//! their own index.
//!
//! ```text
//! BlockWriter::push(labels, columns)* -> finish -> blocks/<ulid>/{meta.json, index, data-000..}
//! Block::open -> lookup(matchers) -> ordinals -> reader().read(ordinal, range)
//!                                             -> labels(ordinals)
//! ```
//!
//! `docs/format/block.md` specifies the bytes. Within a block, a series is identified by its
//! *ordinal*, its position in the block's order. Readers load units of about 64 KiB, each with its
//! own checksum, into one cache shared by all blocks; besides these units, only the tables that
//! locate them stay in memory. A page of samples is such a unit. Its columns are encoded as in
//! `crate::page`, except that each refers to a time column of the block by number instead of
//! containing its own times.
//!
//! Invariant: the bytes of a block are a function of the pushed series and of the metadata that the
//! writer was given. Reading corrupted bytes either returns the original data or an error that
//! names the file and the offset. It never panics, and it never allocates by an unchecked length.

mod cache;
mod cached;
mod columns;
mod data_page;
mod exemplars;
mod file;
mod files;
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
mod sections;
mod series;
mod series_labels;
mod tail;
mod terms;
mod terms_section;
mod times;
mod unit;
mod verify;
mod writer;

pub use cache::BlockCache;
pub use columns::{BlockColumn, BlockColumnReader};
pub use id::{BlockId, InvalidBlockId};
pub(crate) use layout::{INDEX, INDEX_COPY};
pub(crate) use meta::META;
pub use meta::{BlockMeta, BlockShard, FileMeta};
pub use metadata::MetricMetadataSet;
pub use order::compare_block_order;
pub use reader::Block;
pub use series_labels::LabelsReader;
pub use verify::BlockFault;
pub(crate) use writer::remove_folder;
pub use writer::{BlockSpec, BlockWriter};
