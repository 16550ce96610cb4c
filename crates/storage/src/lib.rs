//! The local store: log, head and active index. Sync; no tokio, no HTTP.

pub mod store;
