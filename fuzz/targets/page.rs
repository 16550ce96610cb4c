//! Fuzzes a page: each column is rejected, or has ascending times and the same number of values.

#![cfg_attr(fuzzing, no_main)]

use firn_model::sample::TimeRange;
use firn_storage::page::{PageDecodeScratch, PageReader, SampleColumns};
use std::sync::Arc;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(page) = PageReader::open(Arc::from(bytes)) else {
        return;
    };
    let (mut scratch, mut columns) = (PageDecodeScratch::default(), SampleColumns::default());
    for index in 0..page.column_count().min(64) {
        let Ok(column) = page.column(index) else {
            continue;
        };
        columns.clear();
        if page
            .decode(&column, TimeRange::ALL, &mut scratch, &mut columns)
            .is_ok()
        {
            assert!(columns.times.is_sorted_by(|a, b| a < b));
            assert_eq!(columns.times.len(), columns.values.len());
        }
    }
});
