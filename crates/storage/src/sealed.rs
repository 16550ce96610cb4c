//! Sealed samples: pages in segment files, a directory in memory, and one cache over their bytes.
//!
//! ```text
//! group: 512 neighbouring slots      page: the samples of a group for one window of data time
//! pages/00000000000000000001.pages   header | page frame ... | directory frame | trailer
//! ```
//!
//! A page says which samples it took over from the log (see [`meta::PageMeta`]), so that a start
//! combines the two by exact coverage. Pages are appended and synced before readers find
//! them, and go with their segment, once all of it has left the retention. Of one series a later
//! page has only later samples, unless damage made a start take samples back out of the log.
//! `docs/format/pages.md` draws the bytes; what a page's columns look like inside is the affair of
//! [`crate::page`].

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
pub(crate) use view::Sealed;
