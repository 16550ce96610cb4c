//! What pushes say of metrics is kept in the data folder; without it the server goes on.

use firn_ingest::Pipeline;
use firn_model::env::Env;
use std::path::Path;
use tracing::warn;

/// The folder in the data folder.
const FOLDER: &str = "metadata";

/// Takes over what was kept. May block; the folder must be this process's.
pub fn open(pipeline: &Pipeline, env: &Env, data_dir: &Path) {
    let (disk, now) = (env.disk.clone(), env.clock.now_ms());
    let opened = pipeline.metadata().open(disk, &data_dir.join(FOLDER), now);
    if let Err(e) = opened {
        warn!(error = %e, "metadata of pushes is not kept: remove its file to begin anew");
    }
}

/// Keeps what changed, as often as that is due, or at once when all writes ended. May block.
pub fn keep(pipeline: &Pipeline, is_last: bool) {
    if let Err(e) = pipeline.keep_metadata(is_last) {
        warn!(error = %e, "keep metadata of pushes");
    }
}
