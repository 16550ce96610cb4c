//! Access to the values of parsed command-line flags.

use crate::error::MirrorError;
use clap::ArgMatches;
use firn_model::units::parse_duration;

/// Returns the value of a flag that has a default.
pub(super) fn value<T: Clone + Send + Sync + 'static>(
    matches: &ArgMatches,
    id: &str,
) -> Result<T, MirrorError> {
    let value = matches.get_one::<T>(id).cloned();
    value.ok_or_else(|| MirrorError::Usage(format!("flag --{id} needs a value")))
}

/// Returns the value of a duration flag, such as `15s`, `1m30s` or `100ms`, in milliseconds.
pub(super) fn duration_ms(matches: &ArgMatches, id: &str) -> Result<i64, MirrorError> {
    let text: String = value(matches, id)?;
    let duration = parse_duration(&text).map_err(|_| {
        MirrorError::Usage(format!(
            "not a duration: {text:?}, expected for example 1m30s"
        ))
    })?;
    Ok(duration.as_millis() as i64)
}
