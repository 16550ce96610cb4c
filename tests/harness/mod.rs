//! Runs the built binary on the loopback interface and accesses it like its clients.
//!
//! Every wait has a deadline. A server is killed on drop; its log is printed if the test is
//! failing.

pub mod bucket_proxy;
pub mod choices;
pub mod cluster;
pub mod http;
pub mod http_message;
pub mod ledger;
pub mod load;
pub mod s3;
pub mod s3_signature;
pub mod server;
pub mod webhook;
pub mod write;
