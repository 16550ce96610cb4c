//! Checks the metric names and types of series that `rate` and `increase` are applied to.

use crate::ast::PositionRange;
use crate::eval::account::QueryAccount;
use crate::eval::annotations::Annotation;
use crate::eval::rows::source::SampleSource;
use crate::value::PromqlError;
use firn_model::labels::METRIC_NAME;

/// The series that are probably not counters, and the annotations about them.
#[derive(Debug, Default)]
pub(crate) struct CounterNames {
    /// For each series, the index of its annotation plus one, or zero. Empty if no series has an
    /// annotation.
    remarks_of: Vec<u32>,
    /// The distinct annotations, one for each combination of metric name and type.
    remarks: Vec<Annotation>,
}

impl CounterNames {
    /// Checks the metric names of all series of `source`, or their type labels if `by_type` is set.
    pub(crate) fn check(
        source: &dyn SampleSource,
        by_type: bool,
        span: PositionRange,
        account: &QueryAccount<'_>,
    ) -> Result<Self, PromqlError> {
        let (names, _names) = source.label_column(METRIC_NAME, account)?;
        let kinds = if by_type {
            Some(source.label_column("__type__", account)?)
        } else {
            None
        };
        let plain: Vec<bool> = names.values.iter().map(|n| !is_counter_name(n)).collect();
        if kinds.is_none() && !plain.contains(&true) {
            return Ok(Self::default());
        }
        let mut out = Self::default();
        let mut known = rustc_hash::FxHashMap::default();
        for (series, name_id) in names.ids.iter().enumerate() {
            account.check()?;
            let name = &names.values[*name_id as usize];
            let kind = kinds.as_ref().map(|(k, _)| (k.ids[series], k));
            let questionable = match kind {
                _ if name.is_empty() => false,
                None => plain[*name_id as usize],
                Some((id, column)) => {
                    !matches!(&*column.values[id as usize], b"counter" | b"histogram")
                }
            };
            let remark = questionable.then(|| {
                *known
                    .entry((*name_id, kind.map(|(id, _)| id)))
                    .or_insert_with(|| {
                        out.remarks.push(match kind {
                            None => Annotation::possible_non_counter(span, name),
                            Some((id, column)) => Annotation::possible_non_counter_type(
                                span,
                                name,
                                &column.values[id as usize],
                            ),
                        });
                        out.remarks.len() as u32
                    })
            });
            out.remarks_of.push(remark.unwrap_or(0));
        }
        Ok(out)
    }

    /// Returns the number of distinct annotations, which callers use to add each only once per
    /// part.
    pub(crate) fn len(&self) -> usize {
        self.remarks.len()
    }

    /// Returns the annotation about a series and its index, or `None` if the series seems to be a
    /// counter.
    pub(crate) fn remark(&self, series: usize) -> Option<(usize, &Annotation)> {
        let number = self.remarks_of.get(series).copied().unwrap_or(0);
        let index = (number as usize).checked_sub(1)?;
        Some((index, &self.remarks[index]))
    }
}

fn is_counter_name(name: &[u8]) -> bool {
    let endings: [&[u8]; 4] = [b"_total", b"_sum", b"_count", b"_bucket"];
    name.is_empty() || endings.iter().any(|ending| name.ends_with(ending))
}
