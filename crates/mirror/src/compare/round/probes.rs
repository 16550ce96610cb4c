//! Which of many queries has a result, asked for in few requests.
//!
//! Queries are put together by `or`, so that one request says of all of them that there is nothing.
//! Where there is something, or the system does not say, halves of them are asked, down to one.

/// Queries in one request.
const BATCH_MAX: usize = 50;

/// The longest expression of several queries: VictoriaMetrics takes 16 KiB.
const BATCH_BYTES_MAX: usize = 8_000;

const OR: &str = " or ";

/// The place of the first query with a result; `None` if no query has one. Fails with why it is
/// not known.
pub fn first_with_data(
    queries: &[String],
    has_data: &dyn Fn(&str) -> Result<bool, String>,
) -> Result<Option<usize>, String> {
    let mut rest = queries;
    while !rest.is_empty() {
        let (batch, behind) = rest.split_at(batch_of(rest));
        if let Some(place) = search(batch, has_data)? {
            return Ok(Some(queries.len() - rest.len() + place));
        }
        rest = behind;
    }
    Ok(None)
}

/// How many of the first queries are one request.
fn batch_of(queries: &[String]) -> usize {
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

    /// What comes of `count` queries of `bytes` bytes, of which `live` have data, about `refused`
    /// of which the system says nothing, and in how many requests.
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
            match holds(text, refused) {
                true => Err("too many samples".to_owned()),
                false => Ok(holds(text, live)),
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
        // Long ones come in smaller batches, one at least.
        check((10, 3_000), &[9], &[], Ok(Some(9)), 10);
        check((3, 20_000), &[], &[], Ok(None), 3);
        // What is not known about one hides nothing that stands before it, and is no answer.
        check((100, 4), &[20], &[70], Ok(Some(20)), 20);
        check((100, 4), &[90], &[70], Err("0070: too many samples"), 20);
        check((100, 4), &[], &[70], Err("0070: too many samples"), 20);
    }
}
