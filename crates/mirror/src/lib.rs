//! Load generation against any Prometheus-compatible system, over public HTTP only.
