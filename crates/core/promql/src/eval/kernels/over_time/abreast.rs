//! Computes several windows at the same time, one per lane. The processor works on all lanes in
//! parallel, and each window retains its own order of operations.

use crate::eval::kernels::window::StepWindows;

/// The number of lanes, which equals the number of floats in an AVX-512 register.
pub(super) const LANES: usize = 8;

/// Consecutive windows that are computed together, none of which is empty.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ParallelWindows {
    /// The steps of the windows. If there are too few windows, the last one is repeated.
    pub(super) steps: [usize; LANES],
    starts: [usize; LANES],
    ends: [usize; LANES],
}

impl ParallelWindows {
    /// Returns all windows that contain samples, in order and in groups of [`LANES`].
    pub(super) fn group_windows(windows: &StepWindows) -> impl Iterator<Item = ParallelWindows> {
        let mut rest = windows.iter();
        std::iter::from_fn(move || {
            let mut window = rest.next()?;
            let mut abreast = ParallelWindows::default();
            for lane in 0..LANES {
                let (step, start, end) = window;
                abreast.steps[lane] = step;
                abreast.starts[lane] = start;
                abreast.ends[lane] = end;
                if lane + 1 < LANES {
                    window = rest.next().unwrap_or(window);
                }
            }
            Some(abreast)
        })
    }

    /// Returns the number of samples in all windows together.
    pub(super) fn samples(&self) -> usize {
        let counts = self.starts.iter().zip(&self.ends);
        counts.map(|(start, end)| end - start).sum()
    }

    /// Returns the samples in the window of a lane.
    pub(super) fn window<'a>(&self, lane: usize, values: &'a [f64]) -> &'a [f64] {
        &values[self.starts[lane]..self.ends[lane]]
    }

    /// Returns the number of samples in the shortest window.
    pub(super) fn shortest_len(&self) -> usize {
        let counts = self.starts.iter().zip(&self.ends);
        counts.map(|(start, end)| end - start).min().unwrap_or(0)
    }

    /// Passes the first samples of all lanes to `each`, then the second ones, and so on, as long as
    /// every lane has one.
    #[inline(always)]
    pub(super) fn scan(&self, values: &[f64], mut each: impl FnMut([f64; LANES])) {
        let (first, count) = (self.starts[0], self.shortest_len());
        let follows = |(lane, start): (usize, &usize)| *start == first + lane;
        if self.starts.iter().enumerate().all(follows) {
            // The windows are adjacent, so the loads of all lanes are contiguous.
            let reached = &values[first..first + count + LANES - 1];
            for abreast in reached.array_windows() {
                each(*abreast);
            }
            return;
        }
        let lanes = self.starts.map(|start| &values[start..start + count]);
        for at in 0..count {
            each(lanes.map(|lane| lane[at]));
        }
    }
}
