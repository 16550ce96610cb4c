//! Exact quantiles of what was measured.

/// Values in order, asked for quantiles by nearest rank: every answer is a value that was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quantiles {
    sorted: Vec<u32>,
}

impl Quantiles {
    /// Sorts `values`.
    pub fn new(mut values: Vec<u32>) -> Self {
        values.sort_unstable();
        Self { sorted: values }
    }

    /// The smallest value that at least the share `q` of all values do not exceed; zero of none.
    pub fn at(&self, q: f64) -> u32 {
        let rank = (q * self.sorted.len() as f64).ceil() as usize;
        self.sorted
            .get(rank.saturating_sub(1))
            .or(self.sorted.last())
            .copied()
            .unwrap_or(0)
    }

    /// The largest value.
    pub fn max(&self) -> u32 {
        self.at(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_by_nearest_rank_is_a_measured_value() {
        let cases: [(&[u32], f64, u32); 6] = [
            (&[], 0.5, 0),
            (&[3], 0.999, 3),
            (&[4, 1, 3, 2], 0.5, 2),
            (&[4, 1, 3, 2], 0.51, 3),
            (&[4, 1, 3, 2], 0.0, 1),
            (&[4, 1, 3, 2], 1.0, 4),
        ];
        for (values, q, expected) in cases {
            assert_eq!(
                Quantiles::new(values.to_vec()).at(q),
                expected,
                "{values:?} at {q}"
            );
        }
    }
}
