//! Estimates the scrape interval of a series from the times of its samples.
//!
//! The estimate is the mean of the shortest distances that repeat among the last [`DISTANCES`] ones
//! of all replicas. Missed scrapes (distances of two intervals and more) and one scrape that is too
//! early therefore do not change it, and a new interval is detected after a few scrapes.

/// Number of distances that are kept: those of eight scrapes of two replicas. With half as many,
/// one of 10,000 random histories with deaths and missed scrapes leads to a wrong estimate.
const DISTANCES: usize = 16;

/// Minimum number of distances at which the shortest one may be an exception.
const EXCEPTION_MIN: usize = 4;

/// The last distances between samples of a series, and the interval estimated from them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ScrapeInterval {
    distances: [u32; DISTANCES],
    count: u8,
    next: u8,
    estimate_ms: u32,
}

impl ScrapeInterval {
    /// Adds the distance in milliseconds between two consecutive samples of one replica.
    pub(super) fn add_distance(&mut self, distance_ms: i64) {
        let Ok(distance) = u32::try_from(distance_ms) else {
            return;
        };
        if distance == 0 {
            return;
        }
        self.distances[usize::from(self.next)] = distance;
        self.next = (self.next + 1) % DISTANCES as u8;
        self.count = (self.count + 1).min(DISTANCES as u8);
        self.estimate_ms = self.estimate();
    }

    /// Returns the estimated interval in milliseconds, or `None` before the first distance.
    pub(super) fn estimate_ms(&self) -> Option<i64> {
        (self.count > 0).then(|| i64::from(self.estimate_ms.max(1)))
    }

    fn estimate(&self) -> u32 {
        let mut sorted = self.distances;
        let sorted = &mut sorted[..usize::from(self.count)];
        sorted.sort_unstable();
        let typical = u64::from(sorted[usize::from(sorted.len() >= EXCEPTION_MIN)]);
        let is_alike = |distance: &u64| distance * 5 <= typical * 9 && distance * 9 >= typical * 5;
        let alike = sorted.iter().map(|distance| u64::from(*distance));
        let (sum, count) = alike
            .filter(is_alike)
            .fold((0, 0), |(sum, count), distance| (sum + distance, count + 1));
        // The typical distance is one of them, so there is at least one.
        u32::try_from(sum / count.max(1)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(distances: &[i64], expected: Option<i64>) {
        let mut interval = ScrapeInterval::default();
        for distance in distances {
            interval.add_distance(*distance);
        }
        assert_eq!(interval.estimate_ms(), expected, "{distances:?}");
    }

    #[test]
    fn estimate_is_the_shortest_distance_that_repeats() {
        check(&[], None);
        check(&[0, -5], None);
        check(&[15], Some(15));
        check(&[30, 15], Some(15));
        // Missed scrapes, and one scrape that is too early.
        check(&[15, 15, 30, 45, 15, 30], Some(15));
        check(&[15, 15, 15, 2, 15], Some(15));
        // Jitter.
        check(&[14, 16, 13, 17], Some(15));
        // A new interval.
        check(&[60, 60, 60, 60, 60, 60, 60, 60, 15, 15], Some(15));
        let longer = [[15; 16], [60; 16]].concat();
        check(&longer[..30], Some(15));
        check(&longer[..31], Some(60));
        check(&[i64::MAX, 15], Some(15));
    }
}
