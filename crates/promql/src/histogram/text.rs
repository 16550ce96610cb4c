//! The form in which `count_values` writes a histogram into a label.

use super::buckets::Bucket;
use super::form::FloatHistogram;
use crate::go_format::format_g;
use std::fmt;

impl fmt::Display for FloatHistogram {
    /// `{count:4, sum:3, [-2,-1):1, [-0.5,0.5]:1, (1,2]:2}`: the buckets that hold something,
    /// upwards.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{count:{}, sum:{}", g(self.count), g(self.sum))?;
        for bucket in self.negative_buckets().rev() {
            self.write_bucket(f, bucket, (bucket.lower < 0.0, bucket.upper > 0.0))?;
        }
        self.write_bucket(f, self.zero_bucket(), (true, true))?;
        let first = self.positive.indexes().first() == Some(&0);
        for (place, bucket) in self.positive_buckets().enumerate() {
            let ends = match self.is_custom() {
                true => (place == 0 && first, true),
                false => (bucket.lower < 0.0, bucket.upper > 0.0),
            };
            self.write_bucket(f, bucket, ends)?;
        }
        f.write_str("}")
    }
}

impl FloatHistogram {
    fn write_bucket(
        &self,
        f: &mut fmt::Formatter<'_>,
        bucket: Bucket,
        (with_lower, with_upper): (bool, bool),
    ) -> fmt::Result {
        if bucket.count == 0.0 {
            return Ok(());
        }
        let open = if with_lower { '[' } else { '(' };
        let close = if with_upper { ']' } else { ')' };
        let (lower, upper, count) = (g(bucket.lower), g(bucket.upper), g(bucket.count));
        write!(f, ", {open}{lower},{upper}{close}:{count}")
    }
}

fn g(value: f64) -> String {
    format_g(value, None)
}
