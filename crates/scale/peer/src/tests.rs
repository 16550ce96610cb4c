//! Tests of client and server over loopback.
