//! Formats times for users and for names of folders.

use firn_model::env::Env;
use firn_model::sample::TimestampMs;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Formats a time in UTC for users, with a fraction of a second if needed:
/// `2006-01-02T15:04:05.5Z`.
pub fn time(at: TimestampMs) -> String {
    let nanos = i128::from(at) * 1_000_000;
    let civil = OffsetDateTime::from_unix_timestamp_nanos(nanos).ok();
    let text = civil.and_then(|civil| civil.format(&Rfc3339).ok());
    text.unwrap_or_else(|| format!("{at} ms"))
}

/// Formats a time in seconds for the name of a folder: `20060102T150405Z`.
pub fn file_time(at: TimestampMs) -> String {
    let kept = |c: &char| !matches!(c, '-' | ':');
    let seconds = time(at.div_euclid(1_000) * 1_000);
    seconds.chars().filter(kept).collect()
}

/// Returns a new name for a snapshot, in upstream's form: the current time and random digits.
pub fn snapshot_name(env: &Env) -> String {
    let time = file_time(env.clock.now_ms());
    format!("{time}-{:016x}", env.rng.next_u64() >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::env::sim;

    #[test]
    fn snapshot_name_is_a_time_and_a_number() {
        let sim = sim::sim_env(1);
        sim.clock.set_ms(1_136_214_245_999);
        let name = snapshot_name(&sim.env);
        let (time, number) = name.split_once('-').unwrap();
        assert_eq!((time, number.len()), ("20060102T150405Z", 16), "{name}");
        assert_ne!(snapshot_name(&sim.env), name);
    }
}
