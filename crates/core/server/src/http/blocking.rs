//! Work of a request on a thread that may block: decoding long bodies, compiling patterns, files.

use super::failure::ApiFailure;
use tokio::task::spawn_blocking;

/// Returns the result of `work`, which runs on a blocking thread. Fails if it panics; the panic is
/// in the log.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiFailure> {
    let done = spawn_blocking(work).await;
    done.map_err(|_| ApiFailure::internal("the request failed: see the log"))
}
