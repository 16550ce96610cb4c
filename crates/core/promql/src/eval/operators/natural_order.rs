//! The natural order of texts that contain numbers, used by `sort_by_label`: `pod-2` is before
//! `pod-10`.

use std::cmp::Ordering;

/// Compares two texts. Runs of digits are compared as numbers, other runs as text. A prefix of a
/// text is before the text. Texts that differ only in leading zeros are compared as text, so the
/// order is total.
pub(crate) fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let (mut a_runs, mut b_runs) = (DigitRuns(a), DigitRuns(b));
    loop {
        let order = match (a_runs.next(), b_runs.next()) {
            (Some(left), Some(right)) => compare_runs(left, right),
            (None, None) => return a.cmp(b),
            (left, right) => left.is_some().cmp(&right.is_some()),
        };
        if order.is_ne() {
            return order;
        }
    }
}

fn compare_runs(left: &[u8], right: &[u8]) -> Ordering {
    match (digits(left), digits(right)) {
        (Some(x), Some(y)) => x.len().cmp(&y.len()).then_with(|| x.cmp(y)),
        _ => left.cmp(right),
    }
}

/// Returns the digits of a run without leading zeros, or `None` if the run does not consist of
/// digits.
fn digits(run: &[u8]) -> Option<&[u8]> {
    let is_number = run.first().is_some_and(u8::is_ascii_digit);
    let zeros = run.iter().take_while(|byte| **byte == b'0').count();
    is_number.then_some(&run[zeros..])
}

/// An iterator over the runs of digits and of other characters in a text.
struct DigitRuns<'a>(&'a [u8]);

impl<'a> Iterator for DigitRuns<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let digits = self.0.first()?.is_ascii_digit();
        let len = self
            .0
            .iter()
            .take_while(|byte| byte.is_ascii_digit() == digits)
            .count();
        let (run, rest) = self.0.split_at(len);
        self.0 = rest;
        Some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn natural_order_compares_numbers_as_numbers() {
        for (first, second) in [
            ("pod-2", "pod-10"),
            ("a", "b"),
            ("", "a"),
            ("a1", "a1b"),
            ("1", "a"),
            ("v1.9", "v1.10"),
            ("01", "1"),
            ("1", "02"),
            ("95", "8999"),
            ("8999", "9000000000000000000000"),
            ("95", "9000000000000000000000"),
        ] {
            let (a, b) = (first.as_bytes(), second.as_bytes());
            assert_eq!(compare(a, b), Ordering::Less, "{first} {second}");
            assert_eq!(compare(b, a), Ordering::Greater, "{first} {second}");
        }
    }

    #[test]
    fn natural_order_of_any_three_texts_is_transitive() {
        let texts = [
            "",
            "0",
            "00",
            "01",
            "1",
            "1a",
            "01a",
            "2",
            "10",
            "a",
            "a1",
            "a01",
            "a1b",
            "-",
            "-1",
            "8999",
            "95",
            "9000000000000000000000",
        ]
        .map(str::as_bytes);
        for a in texts {
            for b in texts {
                assert_eq!(compare(a, b), compare(b, a).reverse(), "{a:?} {b:?}");
                for c in texts {
                    if compare(a, b).is_le() && compare(b, c).is_le() {
                        assert!(compare(a, c).is_le(), "{a:?} {b:?} {c:?}");
                    }
                }
            }
        }
    }
}
