//! Pages with changed bytes. With unchanged checksums, only pushed data is read. With recomputed
//! checksums, nothing panics and memory stays within its bounds.
//!
//! `FIRN_SEEDS=n` and `FIRN_SEED=s` select the seeds, as in the other tests.

use crate::series::assert_equal;
use crate::{seeds, series};
use firn_model::env::Rng;
use firn_model::env::sim::SimRng;
use firn_model::sample::TimeRange;
use firn_storage::ids::SeriesSlot;
use firn_storage::page::{
    DecodeError, HISTOGRAM_NUMBERS_MAX, HistogramFamilyHash, LogSpan, PageBuilder,
    PageDecodeScratch, PageReader, SAMPLES_MAX, SampleColumns,
};
use std::ops::Range;

/// Offset of the list of sections in the header, and the length of an entry.
const SECTIONS_AT: usize = 80;
const SECTION_BYTES: usize = 24;

/// Number of lists in the directory before the checksums of the stripes.
const LISTS: usize = 11;

/// Returns series of all classes. They are short, so that every byte is likely to be changed.
fn pushes(rng: &SimRng) -> Vec<(u64, SampleColumns)> {
    let count = [3, 40, 130, 1_100][rng.next_u64() as usize % 4];
    let times = series::times(rng, 3, count);
    let mut slot = 50;
    let mut pushes = Vec::new();
    for _ in 0..1 + rng.next_u64() % 12 {
        let from = if rng.next_u64().is_multiple_of(4) {
            count / 3
        } else {
            0
        };
        let class = rng.next_u64() % series::CLASSES;
        let mut columns = series::of_class(rng, class, &times[from..]);
        if rng.next_u64().is_multiple_of(4) {
            columns = series::with_histograms(rng, columns);
        }
        if rng.next_u64().is_multiple_of(5) {
            columns.start_times = columns.times.iter().map(|t| t - t % 7).collect();
        }
        pushes.push((slot, columns));
        slot += 1 + rng.next_u64() % 3;
    }
    pushes
}

fn sealed(pushes: &[(u64, SampleColumns)]) -> Vec<u8> {
    let mut builder = PageBuilder::new(LogSpan::default());
    for (slot, columns) in pushes {
        let pushed = builder.push(SeriesSlot(*slot), Some(HistogramFamilyHash(1)), columns);
        pushed.expect("no series is too long");
    }
    builder.finish().expect("there are series")
}

/// Changes some bytes in a range.
fn damage(rng: &SimRng, bytes: &mut [u8], stretch: Range<usize>) {
    let pick = |range: &Range<usize>| range.start + rng.next_u64() as usize % range.len().max(1);
    for _ in 0..=rng.next_u64() % 4 {
        let at = pick(&stretch);
        let end = pick(&(at..stretch.end)).max(at);
        match rng.next_u64() % 6 {
            0 | 1 => bytes[at] ^= 1 << (rng.next_u64() % 8),
            2 => bytes[at] = rng.next_u64() as u8,
            3 => bytes[at..end.min(at + 9)].fill(0),
            4 => bytes[at..end.min(at + 9)].fill(0xff),
            _ => {
                let from = pick(&stretch).min(stretch.end - (end - at));
                bytes.copy_within(from..from + (end - at), at);
            }
        }
    }
}

/// Reads every column and checks that the result is within its bounds.
fn read_all(bytes: &[u8], ranges: &[TimeRange]) -> Result<Vec<(u64, SampleColumns)>, DecodeError> {
    let page = PageReader::open(bytes.into())?;
    let mut scratch = PageDecodeScratch::default();
    let mut all = Vec::new();
    for index in 0..page.column_count().min(1_000) {
        let column = page.column(index)?;
        page.find_column(column.slot())?;
        for range in ranges {
            let mut read = SampleColumns::default();
            let decoded = page.decode(&column, *range, &mut scratch, &mut read);
            assert!(read.times.len() <= SAMPLES_MAX && read.values.len() <= SAMPLES_MAX);
            assert!(read.start_times.capacity() <= 2 * SAMPLES_MAX);
            assert!(read.histograms.len() <= HISTOGRAM_NUMBERS_MAX);
            decoded?;
            assert!(read.times.is_sorted() && read.times.len() == read.values.len());
            all.push((column.slot().0, read));
        }
    }
    Ok(all)
}

#[test]
fn page_with_changed_bytes_is_refused_or_says_what_was_pushed() {
    for seed in seeds::seeds(500) {
        let rng = SimRng::new(seed);
        let pushes = pushes(&rng);
        let mut bytes = sealed(&pushes);
        let whole = 0..bytes.len();
        match rng.next_u64() % 8 {
            0 => bytes.truncate(rng.next_u64() as usize % whole.len()),
            1 => bytes.push(rng.next_u64() as u8),
            2 => drop(bytes.remove(rng.next_u64() as usize % whole.len())),
            _ => damage(&rng, &mut bytes, whole),
        }
        let Ok(read) = read_all(&bytes, &[TimeRange::ALL]) else {
            continue;
        };
        assert_eq!(read.len(), pushes.len(), "seed {seed}");
        for ((slot, read), (pushed_slot, pushed)) in read.iter().zip(&pushes) {
            assert_eq!(slot, pushed_slot, "seed {seed}");
            assert_equal(read, pushed, &format!("seed {seed}"));
        }
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word[..N].copy_from_slice(&bytes[at..at + N]);
    u64::from_le_bytes(word)
}

/// Returns the byte range of a section.
fn section(bytes: &[u8], index: usize) -> Range<usize> {
    let at = SECTIONS_AT + index * SECTION_BYTES;
    let offset = number::<8>(bytes, at + 8) as usize;
    offset..offset + number::<8>(bytes, at + 16) as usize
}

/// Returns the byte ranges of the stripes of an intact page, and the offsets of their checksums.
fn stripes(bytes: &[u8]) -> Vec<(Range<usize>, usize)> {
    let (directory, data) = (section(bytes, 0), section(bytes, 1));
    let mut at = directory.start;
    let mut counts = [0usize; 4];
    for count in &mut counts {
        for shift in (0..).step_by(7) {
            at += 1;
            *count |= usize::from(bytes[at - 1] & 0x7f) << shift;
            if bytes[at - 1] < 0x80 {
                break;
            }
        }
    }
    let [columns, times, starts, stripes] = counts;
    let lens = [
        columns, columns, columns, columns, columns, times, times, times, times, starts,
    ];
    assert_eq!(lens.len() + 1, LISTS);
    for len in lens {
        at += 1 + (len * usize::from(bytes[at])).div_ceil(8);
    }
    let width = usize::from(bytes[at]);
    let end = |i: usize| {
        (0..width).fold(0, |end, bit| {
            let place = i * width + bit;
            end | usize::from(bytes[at + 1 + place / 8] >> (place % 8) & 1) << bit
        })
    };
    let checksums = at + 1 + (stripes * width).div_ceil(8);
    let start = |i: usize| if i == 0 { 0 } else { end(i - 1) };
    (0..stripes)
        .map(|i| {
            (
                data.start + start(i)..data.start + end(i),
                checksums + 4 * i,
            )
        })
        .collect()
}

/// Recomputes the checksums of the directory and the header.
fn settle(bytes: &mut [u8]) {
    let crc = crc32c::crc32c(&bytes[section(bytes, 0)]);
    bytes[SECTIONS_AT + 4..SECTIONS_AT + 8].copy_from_slice(&crc.to_le_bytes());
    let end = SECTIONS_AT + number::<4>(bytes, 12) as usize * SECTION_BYTES;
    let crc = crc32c::crc32c(&bytes[..end]);
    bytes[end..end + 4].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn page_with_changed_bytes_and_right_checksums_never_panics() {
    for seed in seeds::seeds(1_000) {
        let rng = SimRng::new(seed);
        let mut bytes = sealed(&pushes(&rng));
        let range = TimeRange::new(1_763_000_100_000, 1_763_001_000_000);
        let stripes = stripes(&bytes);
        if rng.next_u64().is_multiple_of(3) {
            let directory = section(&bytes, 0);
            damage(&rng, &mut bytes, directory);
        } else {
            let (stripe, checksum) = &stripes[rng.next_u64() as usize % stripes.len()];
            damage(&rng, &mut bytes, stripe.clone());
            let crc = crc32c::crc32c(&bytes[stripe.clone()]);
            bytes[*checksum..checksum + 4].copy_from_slice(&crc.to_le_bytes());
        }
        settle(&mut bytes);
        // Any result is fine: `read_all` checks the bounds.
        drop(read_all(&bytes, &[TimeRange::ALL, range]));
    }
}

/// Returns the page with one more section.
fn with_section(bytes: &[u8], kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    let end = SECTIONS_AT + 2 * SECTION_BYTES;
    let mut out = bytes[..end].to_vec();
    let len = (bytes.len() + SECTION_BYTES + payload.len()) as u64;
    out[12..16].copy_from_slice(&3u32.to_le_bytes());
    out[16..24].copy_from_slice(&len.to_le_bytes());
    for i in 0..2 {
        let at = SECTIONS_AT + i * SECTION_BYTES + 8;
        let moved = number::<8>(&out, at) + SECTION_BYTES as u64;
        out[at..at + 8].copy_from_slice(&moved.to_le_bytes());
    }
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    out.extend_from_slice(&(len - payload.len() as u64).to_le_bytes());
    out.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&bytes[end + 4..]);
    out.extend_from_slice(payload);
    settle(&mut out);
    out
}

#[test]
fn page_with_a_section_to_come_is_read_if_that_is_optional() {
    let pushes = pushes(&SimRng::new(1));
    let bytes = sealed(&pushes);
    let optional = with_section(&bytes, 900, 1, b"from the future");
    let read = read_all(&optional, &[TimeRange::ALL]).expect("it is optional");
    for ((_, read), (_, pushed)) in read.iter().zip(&pushes) {
        assert_equal(read, pushed, "optional section");
    }
    let required = with_section(&bytes, 900, 0, b"from the future");
    let refused = PageReader::open(required.into()).expect_err("it is not optional");
    assert_eq!(
        refused.to_string(),
        "malformed bytes: page with an unknown section"
    );
    let twice = with_section(&bytes, 2, 0, b"");
    assert!(PageReader::open(twice.into()).is_err());
}

#[test]
fn page_of_another_version_or_flag_is_refused_in_words() {
    let bytes = sealed(&pushes(&SimRng::new(1)));
    for (at, wanted) in [
        (0, "not a page"),
        (8, "page of an unknown version"),
        (10, "page with unknown flags"),
        (16, "page whose length differs from its header"),
    ] {
        let mut bytes = bytes.clone();
        bytes[at] ^= 2;
        settle(&mut bytes);
        let refused = PageReader::open(bytes.into()).expect_err("it was changed");
        assert_eq!(refused.to_string(), format!("malformed bytes: {wanted}"));
    }
}
