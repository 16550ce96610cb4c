//! Runs the built binary on the loopback and talks to it as its clients do.
//!
//! Every wait has a deadline. A server that is dropped is killed; its log is printed if the test is
//! failing.

pub mod http;
pub mod server;
pub mod webhook;
pub mod write;
