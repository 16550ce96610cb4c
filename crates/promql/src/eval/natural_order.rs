//! The order of texts with numbers in them that `sort_by_label` uses: `pod-2` before `pod-10`.

/// Whether `a` comes before `b`. Runs of digits compare as numbers if they fit 64 bits, other runs
/// as text; of a text and its own beginning the beginning comes first.
pub(crate) fn precedes(a: &[u8], b: &[u8]) -> bool {
    let (mut a_runs, mut b_runs) = (Runs(a).peekable(), Runs(b).peekable());
    while let Some(left) = a_runs.next() {
        let Some(right) = b_runs.next() else {
            return false;
        };
        let equal = match (number(left), number(right)) {
            (Some(x), Some(y)) if x != y => return x < y,
            (Some(_), Some(_)) => true,
            _ => left == right,
        };
        if !equal {
            return left < right;
        }
        if a_runs.peek().is_none() {
            return true;
        }
        if b_runs.peek().is_none() {
            return false;
        }
    }
    false
}

fn number(run: &[u8]) -> Option<i64> {
    std::str::from_utf8(run).ok()?.parse().ok()
}

/// A text cut where digits begin or end.
struct Runs<'a>(&'a [u8]);

impl<'a> Iterator for Runs<'a> {
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
        for pair in [
            ("pod-2", "pod-10"),
            ("a", "b"),
            ("a1", "a1b"),
            ("1", "a"),
            ("v1.9", "v1.10"),
        ] {
            assert!(precedes(pair.0.as_bytes(), pair.1.as_bytes()), "{pair:?}");
            assert!(!precedes(pair.1.as_bytes(), pair.0.as_bytes()), "{pair:?}");
        }
    }
}
