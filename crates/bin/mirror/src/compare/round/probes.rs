//! Finds the first of many queries that has a result, with few requests.
//!
//! Queries are combined with `or`, so that one request can prove that none of them has a result. If
//! there is a result or the system fails, both halves are tried in turn, down to single queries.

/// Maximum number of queries that are combined in one request.
const BATCH_MAX: usize = 50;

/// Maximum length of a combined expression in bytes; VictoriaMetrics accepts 16 KiB.
const BATCH_BYTES_MAX: usize = 8_000;

const OR: &str = " or ";

/// Returns the index of the first query with a result, or `None` if there is none. Fails with the
/// system's error if a query that would decide this cannot be answered.
pub fn first_with_data(
    queries: &[String],
    has_data: &dyn Fn(&str) -> Result<bool, String>,
) -> Result<Option<usize>, String> {
    let mut rest = queries;
    while !rest.is_empty() {
        let (batch, behind) = rest.split_at(batch_len(rest));
        if let Some(place) = search(batch, has_data)? {
            return Ok(Some(queries.len() - rest.len() + place));
        }
        rest = behind;
    }
    Ok(None)
}

/// Returns how many queries from the front of `queries` fit into one request; at least one.
fn batch_len(queries: &[String]) -> usize {
    let mut bytes = 0;
    let fits = queries.iter().take(BATCH_MAX).take_while(|query| {
        bytes += query.len() + OR.len();
        bytes <= BATCH_BYTES_MAX
    });
    fits.count().max(1)
}

fn search(
    batch: &[String],
    has_data: &dyn Fn(&str) -> Result<bool, String>,
) -> Result<Option<usize>, String> {
    match (has_data(&batch.join(OR)), batch) {
        (Ok(false), _) => Ok(None),
        (Ok(true), [_]) => Ok(Some(0)),
        (Err(why), [query]) => Err(format!("{query}: {why}")),
        _ => {
            let (left, right) = batch.split_at(batch.len() / 2);
            match search(left, has_data)? {
                Some(place) => Ok(Some(place)),
                None => Ok(search(right, has_data)?.map(|place| left.len() + place)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Checks the result and the number of requests for `count` queries of `bytes` bytes each.
    /// Those in `live` have data, and the system rejects those in `refused`.
    fn check(
        (count, bytes): (usize, usize),
        live: &[usize],
        refused: &[usize],
        expected: Result<Option<usize>, &str>,
        requests_max: usize,
    ) {
        let query = |n: usize| format!("{n:0bytes$}");
        let queries: Vec<String> = (0..count).map(query).collect();
        let requests = Cell::new(0);
        let holds = |text: &str, among: &[usize]| among.iter().any(|n| text.contains(&query(*n)));
        let found = first_with_data(&queries, &|text| {
            requests.set(requests.get() + 1);
            if holds(text, refused) {
                Err("too many samples".to_owned())
            } else {
                Ok(holds(text, live))
            }
        });
        let case = format!("{count} of {bytes}, {live:?}, {refused:?}");
        assert_eq!(found, expected.map_err(str::to_owned), "{case}");
        assert!(requests.get() <= requests_max, "{case}: {}", requests.get());
    }

    #[test]
    fn first_query_with_data_is_found_in_few_requests() {
        check((0, 4), &[], &[], Ok(None), 0);
        check((1, 4), &[0], &[], Ok(Some(0)), 1);
        check((5_000, 4), &[], &[], Ok(None), 100);
        check((5_000, 4), &[4_999], &[], Ok(Some(4_999)), 112);
        check((5_000, 4), &[70, 80], &[], Ok(Some(70)), 14);
        // Long queries form smaller batches of at least one query.
        check((10, 3_000), &[9], &[], Ok(Some(9)), 10);
        check((3, 20_000), &[], &[], Ok(None), 3);
        // A failed query does not hide a result before it, but there is no answer without one.
        check((100, 4), &[20], &[70], Ok(Some(20)), 20);
        check((100, 4), &[90], &[70], Err("0070: too many samples"), 20);
        check((100, 4), &[], &[70], Err("0070: too many samples"), 20);
    }
}
