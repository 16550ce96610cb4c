//! Compares configs of `tests/configs/printed` with the output of Prometheus 3.14 at
//! `/api/v1/status/config`.

use super::*;
use crate::config::{Config, JobFeatures, parse};
use std::path::PathBuf;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/configs/printed")
}

fn config(text: &str) -> Config {
    let features = JobFeatures::from_names(&[]);
    parse(text, Path::new(""), features).unwrap().config
}

#[test]
fn config_is_printed_as_prometheus_prints_it() {
    let mut count = 0;
    for found in std::fs::read_dir(folder()).unwrap() {
        let path = found.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.ends_with(".prometheus.yml") {
            continue;
        }
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        let want = read(&path.with_extension("prometheus.yml"));
        // The only different default: late samples are accepted for half an hour.
        let want = want.replace(
            "    outofordertimewindow: 0\n",
            "    outofordertimewindow: 1800000\n    out_of_order_time_window: 30m\n",
        );
        let printed = config(&read(&path)).text;
        assert_eq!(printed, want, "{name}");
        // The printed config must be parsed into the same config again. Prometheus omits `false` if
        // the default is `true`; those files are excluded.
        if !["remote.yml", "storage.yml", "nothing.yml"].contains(&name.as_str()) {
            assert_eq!(config(&printed).text, printed, "{name}");
        }
        count += 1;
    }
    assert_eq!(count, 10);
}

#[test]
fn our_own_section_is_printed_as_it_was_set() {
    let printed = config("firn: {wal_sync: interval, rules: {catch_up: 5m}}").text;
    let own = "firn:\n  wal_sync: interval\n  rules:\n    catch_up: 5m\n";
    assert!(printed.ends_with(own), "{printed}");
}

#[test]
fn sizes_are_printed_in_powers_of_1024() {
    for (bytes, want) in [
        (0, "0B"),
        (1, "1B"),
        (1536 << 10, "1MiB512KiB"),
        (10 << 30, "10GiB"),
        (u64::MAX, "15EiB1023PiB1023TiB1023GiB1023MiB1023KiB1023B"),
    ] {
        assert_eq!(size(bytes), want);
    }
}
