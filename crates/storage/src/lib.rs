//! The local store: log, head and active index. Sync; no tokio, no HTTP.

pub mod error;
pub mod log;
pub mod store;
