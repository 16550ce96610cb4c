//! A page that the disk changed: queries over it fail and say what to do, others go on.

use super::*;
use firn_model::error::Error;
use std::path::Path;

const HOUR: i64 = 3_600_000;

fn times(store: &Store, range: TimeRange) -> Result<Vec<i64>, Error> {
    let selection = select(store, &[], range);
    let mut batch = SeriesBatch::default();
    selection.read(0..selection.len(), &mut batch)?;
    let series = 0..selection.len();
    Ok(series
        .flat_map(|i| batch.series(i).times.to_vec())
        .collect())
}

/// A store of two segments, stopped, and the path of the older one.
fn two_segments(sim: &Sim) -> std::path::PathBuf {
    let store = open(sim, options());
    for time in [0, 8 * HOUR] {
        append(
            &store,
            &batch(&[("a", &[(time, 1.0), (time + 1, 2.5)])]),
            ALWAYS,
        );
        (0..2).for_each(|_| store.tick());
    }
    store.close().unwrap();
    drop(store);
    let names = sim.env.disk.list(Path::new("/data/pages")).unwrap();
    assert_eq!(names.len(), 2);
    Path::new("/data/pages").join(&names[0])
}

#[test]
fn query_over_a_damaged_page_names_it_and_others_go_on() {
    let mut caught = 0;
    let whole = {
        let sim = sim::env(1);
        let path = two_segments(&sim);
        sim.disk.contents(&path).unwrap()
    };
    for at in 0..whole.len() {
        let sim = sim::env(1);
        let path = two_segments(&sim);
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        sim.disk.overwrite(&path, &bytes);
        let Ok(store) = Store::open(sim.env.clone(), options()) else {
            continue;
        };
        let recent = TimeRange::new(7 * HOUR, 9 * HOUR);
        assert_eq!(times(&store, recent).unwrap(), [8 * HOUR, 8 * HOUR + 1]);
        let Err(e) = times(&store, TimeRange::ALL) else {
            continue;
        };
        caught += 1;
        assert_eq!(e.kind, ErrorKind::Corrupt);
        let start = format!("{} is damaged at offset ", path.display());
        assert!(e.message.starts_with(&start), "{}", e.message);
        assert!(e.message.contains("moved away while Firn is stopped"));
        assert_eq!(store.sealed.cache.damages.get(), 1);
        drop(store);
        sim.env.disk.remove_file(&path).unwrap();
        let store = open(&sim, options());
        assert_eq!(times(&store, TimeRange::ALL).unwrap().len(), 2);
    }
    assert!(caught > 0, "no byte of the page is read by a query alone");
}
