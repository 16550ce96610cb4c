//! Variables of the environment, from which clouds take regions, keys and places.

use std::sync::Arc;

/// Reads a variable of the environment.
pub(super) type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Reads those of this process.
pub(super) fn of_process() -> Variables {
    Arc::new(|name| std::env::var(name).ok())
}
