//! Load generation against any Prometheus-compatible system, over public HTTP only.
//!
//! - [`fleet`]: what a Kubernetes-like fleet would yield, from a seed.
//!
//! Nothing here knows the inside of a store: what holds for Firn can be measured and compared on
//! every system that speaks remote write and Prometheus's HTTP API.

pub mod fleet;
