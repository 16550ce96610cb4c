//! The threads that wait: one runtime for as long as a server runs.

use firn_model::env::real;
use std::io;

/// Does `work` on the threads of a runtime. An error says that there are none.
pub fn run<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // Its threads evaluate queries, with others' help.
        .thread_stack_size(real::STACK_BYTES)
        .build()?;
    let outcome = runtime.block_on(work);
    // A store that is still opening cannot be told to stop, and has nothing to lose.
    runtime.shutdown_background();
    Ok(outcome)
}
