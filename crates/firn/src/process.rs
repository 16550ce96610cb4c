//! The process's view of its system and allocator: memory, open files, log lines, metrics of
//! itself, profiles, threads that wait, the name of its machine.

pub mod descriptors;
pub mod host;
pub mod logs;
pub mod memory;
pub mod metrics;
pub mod pressure;
pub mod profile;
pub mod runtime;
