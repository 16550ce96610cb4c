//! Exact quantiles of measured values.

/// Sorted values whose quantiles are found by nearest rank, so that each is a measured value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Quantiles {
    sorted: Vec<u32>,
}

impl Quantiles {
    /// Sorts `values` for later queries of their quantiles, so that each is found in constant time.
    pub fn new(mut values: Vec<u32>) -> Self {
        values.sort_unstable();
        Self { sorted: values }
    }

    /// Returns the smallest value such that at least the share `q` of all values does not exceed
    /// it; zero if there are no values.
    pub fn quantile(&self, q: f64) -> u32 {
        let rank = (q * self.sorted.len() as f64).ceil() as usize;
        self.sorted
            .get(rank.saturating_sub(1))
            .or(self.sorted.last())
            .copied()
            .unwrap_or(0)
    }

    /// Returns the largest value; zero if there are no values.
    pub fn max(&self) -> u32 {
        self.quantile(1.0)
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
                Quantiles::new(values.to_vec()).quantile(q),
                expected,
                "{values:?} at {q}"
            );
        }
    }
}
