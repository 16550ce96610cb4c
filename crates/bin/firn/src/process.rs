//! Access to the operating system and the allocator: memory, open files, log lines, metrics of the
//! process, profiles, the runtime, and the host name.

pub mod descriptors;
pub mod host;
pub mod logs;
pub mod memory;
pub mod metrics;
pub mod pressure;
pub mod profile;
pub mod runtime;
