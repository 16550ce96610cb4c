//! Pages compared with the pushed data: every class of series, all special values and any range, to
//! the bit.

use crate::series::{assert_equal, between};
use crate::{seeds, series};
use firn_model::env::Rng;
use firn_model::env::sim::SimRng;
use firn_model::log::LogPosition;
use firn_model::sample::TimeRange;
use firn_storage::ids::SeriesSlot;
use firn_storage::page::{
    ColumnEntry, HistogramFamilyHash, LogSpan, PageBuilder, PageDecodeScratch, PageReader,
    SAMPLES_MAX, SampleColumns,
};
use std::sync::Arc;

const META: LogSpan = LogSpan {
    log_from: LogPosition(7),
    log_to: LogPosition(9),
};

fn page_of(pushes: &[(u64, Option<HistogramFamilyHash>, SampleColumns)]) -> PageReader {
    let mut builder = PageBuilder::new(META);
    for (slot, family, columns) in pushes {
        let pushed = builder.push(SeriesSlot(*slot), *family, columns);
        pushed.expect("no series is too long");
    }
    let bytes = builder.finish().expect("there is a series");
    PageReader::open(bytes.into()).expect("the page is sound")
}

fn column_of(page: &PageReader, slot: u64) -> ColumnEntry {
    let column = page
        .find_column(SeriesSlot(slot))
        .expect("the directory is sound");
    column.expect("the slot was pushed")
}

fn read(
    page: &PageReader,
    column: &ColumnEntry,
    range: TimeRange,
    scratch: &mut PageDecodeScratch,
) -> SampleColumns {
    let mut read = SampleColumns::default();
    let decoded = page.decode(column, range, scratch, &mut read);
    decoded.expect("the page is sound");
    read
}

/// Reads every series whole and in parts, in order and out of order.
fn check(
    pushes: &[(u64, Option<HistogramFamilyHash>, SampleColumns)],
    rng: &SimRng,
    context: &str,
) -> PageReader {
    let page = page_of(pushes);
    assert_eq!(page.meta(), META);
    assert_eq!(page.column_count(), pushes.len());
    let samples: usize = pushes.iter().map(|(_, _, c)| c.times.len()).sum();
    assert_eq!(page.sample_count(), samples as u64);
    let mut scratch = PageDecodeScratch::default();
    for (slot, _, pushed) in pushes {
        let context = format!("slot {slot}, {context}");
        let column = column_of(&page, *slot);
        assert_eq!(
            (column.slot(), column.sample_count()),
            (SeriesSlot(*slot), pushed.times.len())
        );
        let (first, last) = (pushed.times[0], pushed.times[pushed.times.len() - 1]);
        assert_eq!(column.range(), TimeRange::new(first, last), "{context}");
        let read = read(&page, &column, TimeRange::ALL, &mut scratch);
        assert_equal(&read, pushed, &context);
    }
    for _ in 0..pushes.len().min(30) {
        let (slot, _, pushed) = &pushes[rng.next_u64() as usize % pushes.len()];
        let at = || pushed.times[rng.next_u64() as usize % pushed.times.len()];
        let range = TimeRange::new(at(), at());
        let column = column_of(&page, *slot);
        let read = read(&page, &column, range, &mut scratch);
        let wanted = between(pushed, range.min, range.max);
        assert_equal(
            &read,
            &wanted,
            &format!("{range:?} of slot {slot}, {context}"),
        );
    }
    page
}

#[test]
fn page_of_random_series_returns_every_bit() {
    for seed in seeds::seeds(100) {
        let rng = SimRng::new(seed);
        let count = [1, 2, 120, 128, 480, 600, 1_500, 3_000][rng.next_u64() as usize % 8];
        let grids: Vec<_> = (0..3)
            .map(|_| series::times(&rng, rng.next_u64() % 6, count))
            .collect();
        let mut slot = rng.next_u64() >> (1 + rng.next_u64() % 60) & !(1 << 31);
        let dense = rng.next_u64().is_multiple_of(2);
        let mut pushes = Vec::new();
        for _ in 0..1 + rng.next_u64() % 40 {
            let grid = &grids[rng.next_u64() as usize % 3];
            let times = match rng.next_u64() % 8 {
                0 => &grid[..1 + rng.next_u64() as usize % count],
                1 => &grid[rng.next_u64() as usize % count..],
                _ => grid,
            };
            let mut times = times.to_vec();
            if rng.next_u64().is_multiple_of(10) && count > 2 {
                times.retain(|t| t % 5 != 0);
                times.push(i64::MAX);
            }
            let mut columns = series::of_class(&rng, rng.next_u64() % series::CLASSES, &times);
            if rng.next_u64().is_multiple_of(6) {
                columns = series::with_histograms(&rng, columns);
            }
            if rng.next_u64().is_multiple_of(5) {
                let start = times[0].wrapping_sub(1_000);
                columns.start_times = vec![start; times.len()];
                if rng.next_u64().is_multiple_of(3) {
                    columns.start_times[times.len() / 2..].fill(times[times.len() / 2]);
                }
            }
            let family = (rng.next_u64() % 3).checked_sub(1).map(HistogramFamilyHash);
            pushes.push((slot, family, columns));
            slot += if dense { 1 } else { 1 + rng.next_u64() % 300 };
        }
        check(&pushes, &rng, &format!("seed {seed}"));
    }
}

/// Returns cumulative buckets of some histograms, as a target exposes them.
fn buckets(
    rng: &SimRng,
    families: u64,
    count: usize,
) -> Vec<(u64, Option<HistogramFamilyHash>, SampleColumns)> {
    let times = series::times(rng, 2, count);
    let mut pushes = Vec::new();
    for family in 0..families {
        let mut totals = [0u64; 20];
        let mut columns = vec![
            SampleColumns {
                times: times.clone(),
                ..SampleColumns::default()
            };
            20
        ];
        for _ in &times {
            for observed in 0..rng.next_u64() % 4 {
                let from = (rng.next_u64() + observed) as usize % 20;
                totals[from..].iter_mut().for_each(|n| *n += 1);
            }
            let cells = columns.iter_mut().zip(&totals);
            cells.for_each(|(c, n)| c.values.push(*n as f64));
        }
        for (le, columns) in columns.into_iter().enumerate() {
            pushes.push((
                family * 22 + le as u64,
                Some(HistogramFamilyHash(family)),
                columns,
            ));
        }
    }
    pushes
}

#[test]
fn page_of_buckets_chains_siblings_and_returns_them() {
    let rng = SimRng::new(3);
    for count in [120, 480, 2_000] {
        let pushes = buckets(&rng, 40, count);
        let with = check(&pushes, &rng, "families");
        let alone: Vec<_> = pushes
            .iter()
            .map(|(slot, _, c)| (*slot, Some(HistogramFamilyHash(*slot)), c.clone()))
            .collect();
        let without = check(&alone, &rng, "no families");
        let guessed: Vec<_> = pushes
            .iter()
            .map(|(s, _, c)| (*s, None, c.clone()))
            .collect();
        let guessed = check(&guessed, &rng, "guessed families");
        let bytes = [&with, &guessed, &without].map(PageReader::memory_bytes);
        assert!(bytes[0] * 4 < bytes[2] * 3, "{bytes:?} of {count}");
        assert!(bytes[1] * 10 < bytes[0] * 11, "{bytes:?} of {count}");
    }
}

#[test]
fn page_read_out_of_order_answers_the_same() {
    let rng = SimRng::new(4);
    let pushes = buckets(&rng, 4, 480);
    let page = page_of(&pushes);
    let mut scratch = PageDecodeScratch::default();
    for _ in 0..2_000 {
        let (slot, _, pushed) = &pushes[rng.next_u64() as usize % pushes.len()];
        let column = column_of(&page, *slot);
        let read = read(&page, &column, TimeRange::ALL, &mut scratch);
        assert_equal(&read, pushed, "out of order");
    }
}

#[test]
fn page_finds_the_slots_that_it_holds_and_no_others() {
    let rng = SimRng::new(5);
    let times = series::times(&rng, 2, 3);
    for gap in [1, 2, 1_000] {
        let slots: Vec<u64> = (0..500)
            .map(|i| 900 + i * gap + (i / 7) * (gap - 1))
            .collect();
        let pushes: Vec<_> = slots
            .iter()
            .map(|slot| (*slot, None, series::of_class(&rng, 1, &times)))
            .collect();
        let page = page_of(&pushes);
        for slot in (0..slots[499] + 3)
            .chain([u32::MAX.into(), 1 << 32, u64::MAX])
            .step_by(1 + gap as usize / 50)
        {
            let found = page
                .find_column(SeriesSlot(slot))
                .unwrap()
                .map(|c| c.slot().0);
            assert_eq!(found, slots.contains(&slot).then_some(slot), "gap {gap}");
        }
    }
}

#[test]
fn page_times_are_shared_by_the_series_that_have_them() {
    let rng = SimRng::new(6);
    let times = [series::times(&rng, 3, 480), series::times(&rng, 3, 480)];
    let pushes: Vec<_> = (0..60)
        .map(|i| (i, None, series::of_class(&rng, 1, &times[i as usize % 2])))
        .collect();
    let page = page_of(&pushes);
    let all: Vec<_> = (0..60)
        .map(|slot| page.times(&column_of(&page, slot)).unwrap())
        .collect();
    for (i, shared) in all.iter().enumerate() {
        assert!(Arc::ptr_eq(shared, &all[i % 2]));
        assert_eq!(shared[..], times[i % 2]);
    }
}

#[test]
fn page_times_that_take_more_than_the_page_are_not_kept() {
    let rng = SimRng::new(6);
    let times: Vec<_> = (0..60).map(|_| series::times(&rng, 3, 480)).collect();
    let pushes: Vec<_> = (0..60)
        .map(|i| (i, None, series::of_class(&rng, 1, &times[i as usize])))
        .collect();
    let page = page_of(&pushes);
    assert!(page.memory_bytes() < 60 * 480 * size_of::<i64>());
    for (slot, times) in (0..).zip(&times) {
        let column = column_of(&page, slot);
        let read = [page.times(&column).unwrap(), page.times(&column).unwrap()];
        assert!(!Arc::ptr_eq(&read[0], &read[1]));
        assert_eq!(read[0][..], times[..]);
    }
}

#[test]
fn page_times_with_gaps_take_few_bytes() {
    let rng = SimRng::new(7);
    let times = series::times(&rng, 3, 480);
    let bytes = |of: fn(usize) -> bool| {
        let own: Vec<i64> = times
            .iter()
            .enumerate()
            .filter(|(i, _)| of(*i))
            .map(|(_, t)| *t)
            .collect();
        let pushes = [
            (0, None, series::of_class(&rng, 0, &times)),
            (1, None, series::of_class(&rng, 0, &own)),
        ];
        check(&pushes, &rng, "gaps").memory_bytes()
    };
    let all = bytes(|_| true);
    assert!(bytes(|i| i >= 100) < all + 32);
    assert!(bytes(|i| i % 31 != 0) < all + 32 + 60);
}

#[test]
fn page_refuses_a_column_beyond_its_limits() {
    let times: Vec<i64> = (0..=SAMPLES_MAX as i64).collect();
    let mut columns = series::of_class(&SimRng::new(8), 0, &times);
    let mut builder = PageBuilder::new(META);
    let refused = builder.push(SeriesSlot(1), None, &columns).unwrap_err();
    assert_eq!(refused.samples, SAMPLES_MAX + 1);
    columns.times.pop();
    columns.values.pop();
    builder.push(SeriesSlot(1), None, &columns).unwrap();
    assert!(PageReader::open(builder.finish().unwrap().into()).is_ok());
    assert!(PageBuilder::new(META).finish().is_none());
}
