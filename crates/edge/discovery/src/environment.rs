//! Access to environment variables, from which cloud discoveries read regions, credentials and
//! endpoints.

use std::sync::Arc;

/// Function that returns the value of an environment variable. Tests replace it.
pub(super) type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Returns a function that reads the environment of this process.
pub(super) fn process_environment() -> Variables {
    Arc::new(|name| std::env::var(name).ok())
}
