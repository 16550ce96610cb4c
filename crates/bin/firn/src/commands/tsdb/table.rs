//! The table of `firn tsdb list`, with promtool's columns where Firn has these values.

use crate::file_time::time;
use firn_model::units::{format_duration, format_size};
use firn_storage::listing::ListedBlock;
use std::time::Duration;

/// Minimum width of a column, as in promtool. Longer values widen their column.
const CELL_MIN: usize = 13;

const HEAD: [&str; 9] = [
    "BLOCK ULID",
    "MIN TIME",
    "MAX TIME",
    "DURATION",
    "NUM SAMPLES",
    "NUM SERIES",
    "SIZE",
    "KIND",
    "LEVEL",
];

/// Formats the blocks, one line each. Times are milliseconds and sizes bytes unless `for_people` is
/// set. The maximum time is exclusive, as in `meta.json`.
pub fn table(blocks: &[ListedBlock], for_people: bool) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(blocks.iter().map(|block| row(block, for_people)));
    align(&rows)
}

/// Formats the rows with columns of equal width, one line each.
pub fn align<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| {
        let longest = rows.iter().map(|row| row[column].len() + 2).max();
        longest.unwrap_or(0).max(CELL_MIN)
    };
    let widths: Vec<usize> = (0..COLUMNS).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths);
        let line: String = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        out += line.trim_end();
        out.push('\n');
    }
    out
}

fn row(block: &ListedBlock, for_people: bool) -> [String; 9] {
    let end = block.range.max.saturating_add(1);
    let at = |time_ms: i64| {
        if for_people {
            time(time_ms)
        } else {
            time_ms.to_string()
        }
    };
    let length = end.saturating_sub(block.range.min).unsigned_abs();
    let kind = match (block.is_late, block.is_bad) {
        (false, false) => "main",
        (true, false) => "late",
        (false, true) => "main, quarantine",
        (true, true) => "late, quarantine",
    };
    [
        block.id.clone(),
        at(block.range.min),
        at(end),
        format_duration(Duration::from_millis(length)),
        block.samples.to_string(),
        block.series.to_string(),
        if for_people {
            format_size(block.bytes)
        } else {
            block.bytes.to_string()
        },
        kind.to_owned(),
        block.level.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::sample::TimeRange;

    #[test]
    fn table_has_a_line_for_each_block_below_its_head() {
        let block = ListedBlock {
            id: "01ARZ3NDEKTSV4RRFFQ69G5FAV".to_owned(),
            range: TimeRange::new(0, 7_199_999),
            samples: 1_234_567,
            series: 89,
            bytes: 3 << 20,
            is_late: false,
            is_bad: false,
            level: 2,
        };
        let late = ListedBlock {
            is_late: true,
            is_bad: true,
            ..block.clone()
        };
        let text = table(&[block.clone(), late], false);
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split("  ").collect()).collect();
        let cells = |line: &[&str]| {
            let cells = line.iter().map(|cell| cell.trim());
            let cells = cells.filter(|cell| !cell.is_empty());
            cells.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(cells(&lines[0]), HEAD);
        let id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let first = [
            id, "0", "7200000", "2h", "1234567", "89", "3145728", "main", "2",
        ];
        assert_eq!(cells(&lines[1]), first);
        assert_eq!(cells(&lines[2])[7], "late, quarantine");
        let starts: Vec<usize> = text.lines().map(|l| l.find("  ").unwrap_or(0)).collect();
        assert_eq!(starts[1], starts[2], "columns stand below each other");
        let text = table(&[block], true);
        let line = text.lines().nth(1).unwrap();
        let people = ["1970-01-01T00:00:00Z", "1970-01-01T02:00:00Z", "3MiB"];
        assert!(people.iter().all(|cell| line.contains(cell)), "{line}");
    }
}
