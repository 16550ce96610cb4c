//! Any bytes as a page: all columns are read with each set of instructions, which agree.

#![no_main]

use firn_model::sample::TimeRange;
use firn_storage::page::{Columns, Instructions, Page, Scratch};
use std::sync::Arc;

/// All that a page holds, in words.
fn read(page: &Page, with: Instructions) -> String {
    let mut scratch = Scratch::new(with);
    let mut out = String::new();
    for index in 0..page.column_count().min(64) {
        let Ok(column) = page.column(index) else {
            out.push_str("no column\n");
            continue;
        };
        let mut columns = Columns::default();
        let decoded = page.decode(&column, TimeRange::ALL, &mut scratch, &mut columns);
        if decoded.is_ok() {
            let bits: Vec<u64> = columns.values.iter().map(|v| v.to_bits()).collect();
            columns.values.clear();
            out.push_str(&format!("{bits:?} {columns:?}"));
        }
        out.push_str(&format!(" {}\n", decoded.is_ok()));
    }
    out
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(page) = Page::open(Arc::from(bytes)) else {
        return;
    };
    let plain = read(&page, Instructions::portable());
    assert_eq!(plain, read(&page, Instructions::best()));
});
