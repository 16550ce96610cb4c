//! Sealed samples: pages in segment files, an in-memory directory of the pages, and a cache of
//! opened pages.
//!
//! ```text
//! group: 512 neighbouring slots      page: the samples of a group for one window of data time
//! pages/00000000000000000001.pages   header | page frame ... | directory frame | trailer
//! ```
//!
//! The header of a page states which samples it took over from the WAL (see
//! [`meta::SealedPageMeta`]), so that a start can combine both without gaps or duplicates. A page
//! is appended and synced before readers find it, and is removed together with its segment once all
//! samples of the segment are in blocks or older than the retention. The samples of a series in a
//! later page are newer than those in earlier pages, unless a start had to restore samples from the
//! WAL because of damage. `docs/format/pages.md` specifies the bytes; the content of a page is
//! defined by [`crate::page`].

pub(crate) mod cache;
pub(crate) mod directory;
pub(crate) mod file_pool;
pub(crate) mod group;
mod lost;
mod lost_pages;
pub(crate) mod meta;
pub(crate) mod range_reader;
pub(crate) mod segment;
pub(crate) mod segments;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use group::{GROUP_SLOTS, group_of, place_in_group};
pub(crate) use view::SealedPages;
