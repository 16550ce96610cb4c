//! The asynchronous runtime of the server: one for the lifetime of the server.

use firn_model::env::real;
use std::io;

/// Runs `work` to completion on a new multi-threaded runtime. Returns an error if the runtime
/// cannot start its threads.
pub fn run<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // These threads take part in the evaluation of queries, which need this stack size.
        .thread_stack_size(real::STACK_BYTES)
        .build()?;
    let outcome = runtime.block_on(work);
    // A store that is still opening cannot be cancelled. It holds no data that a stop could lose.
    runtime.shutdown_background();
    Ok(outcome)
}
