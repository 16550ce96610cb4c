//! Prometheus's text exposition format, version 0.0.4.
