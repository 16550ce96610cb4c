//! Files of checksummed frames: how bytes lie on the disk, and what they say after a stop of any
//! kind.
//!
//! Segments of the log and of pages, the series catalogue and the file of exemplars are all files
//! of frames. This room knows nothing of what a payload means. Invariant: what a reader accepts was
//! written at that place of that file by this room.

pub(crate) mod append_only;
pub(crate) mod frame;
pub(crate) mod header;
pub(crate) mod scan;
pub(crate) mod survey;
