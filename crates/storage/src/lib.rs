//! The local store: log, head and active index. Sync; no tokio, no HTTP.

pub mod checkpoint;
pub mod data_dir;
pub mod error;
pub mod log;
pub mod store;
