//! The HTTP API: routes, JSON, status codes, admission, the embedded page.
