//! Files of checksummed frames: their layout on disk, and their recovery after a stop or crash.
//!
//! Segments of the log and of pages, the series catalogue and the file of exemplars are all files
//! of frames. This module is independent of the contents of payloads. Invariant: a reader accepts
//! only bytes that this module wrote at that position of that file.

pub(crate) mod append_only;
pub(crate) mod frame;
pub(crate) mod header;
pub(crate) mod scan;
pub(crate) mod survey;
