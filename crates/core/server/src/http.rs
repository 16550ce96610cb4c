//! HTTP without the API: conversion of a byte stream into requests, and of responses into bytes.
//!
//! ```text
//! accept -> listener -> connection -> socket (phase, request_head) -> the router
//!                                 watched_body: body <- request -> response: measured, produce
//! ```
//!
//! Invariant: this module is independent of endpoints, stores and PromQL. The exception is
//! [`failure`], which converts errors of the other crates into a status, so that this happens in
//! one place.

pub(crate) mod accept;
pub(crate) mod blocking;
pub(crate) mod body;
pub(crate) mod channel;
pub(crate) mod connection;
pub(crate) mod failure;
mod http2;
pub(crate) mod listener;
pub(crate) mod measured;
mod phase;
pub(crate) mod produce;
pub(crate) mod request_head;
mod socket;
pub(crate) mod watched_body;
