//! Label sets in a canonical binary form, so that equality, hashing and storage need no objects.
//!
//! ```text
//! label set = { uvarint name length | name | uvarint value length | value }*
//! ```
//!
//! Invariant: names are sorted, unique and not empty, and valid UTF-8. Values are not empty. Values
//! are bytes rather than `str`, because PromQL strings are bytes. Labels from outside are checked
//! by [`LabelsBuilder`], or by the decoder that writes the canonical form.

use crate::quote::quote;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The name of the label that contains the metric name.
pub const METRIC_NAME: &str = "__name__";

/// An owned label set in canonical form. Cloning is cheap, because the bytes are shared.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Labels(Arc<[u8]>);

/// A borrowed label set in canonical form. Copying is cheap.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LabelsRef<'a>(&'a [u8]);

impl Default for Labels {
    fn default() -> Self {
        Self::empty()
    }
}

impl Labels {
    /// Returns the label set that contains no labels.
    pub fn empty() -> Self {
        Self(Arc::new([]))
    }

    /// Creates a label set from pairs in any order. For equal names the last pair wins, and pairs
    /// with empty values are dropped.
    pub fn from_pairs<N: AsRef<str>, V: AsRef<[u8]>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let mut builder = LabelsBuilder::default();
        for (name, value) in pairs {
            builder.set(name.as_ref(), value.as_ref());
        }
        builder.build()
    }

    /// Returns a borrowed label set with the same labels.
    pub fn as_ref(&self) -> LabelsRef<'_> {
        LabelsRef(&self.0)
    }

    /// Returns the value of `name`, or an empty value if the label is absent, as in PromQL.
    pub fn get(&self, name: &str) -> &[u8] {
        self.as_ref().get(name)
    }

    /// Returns the pairs of name and value in order of names.
    pub fn iter(&self) -> LabelsIter<'_> {
        self.as_ref().iter()
    }

    /// Returns the bytes of the canonical form.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether the label set contains no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> LabelsRef<'a> {
    /// Wraps canonical bytes. Debug builds check that they are canonical.
    pub fn from_canonical(bytes: &'a [u8]) -> Self {
        debug_assert!(is_canonical(bytes), "label bytes are not canonical");
        Self(bytes)
    }

    /// Returns the bytes of the canonical form.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// Returns the pairs of name and value in order of names.
    pub fn iter(self) -> LabelsIter<'a> {
        LabelsIter { rest: self.0 }
    }

    /// Returns the pairs in order of names as bytes, without checking that names are UTF-8.
    pub fn pairs(self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let mut rest = self.0;
        std::iter::from_fn(move || Some((take_prefixed(&mut rest)?, take_prefixed(&mut rest)?)))
    }

    /// Returns the value of `name`, or an empty value; O(labels).
    pub fn get(self, name: &str) -> &'a [u8] {
        let mut rest = self.0;
        while let (Some(n), Some(v)) = (take_prefixed(&mut rest), take_prefixed(&mut rest)) {
            match n.cmp(name.as_bytes()) {
                Ordering::Less => {}
                Ordering::Equal => return v,
                Ordering::Greater => break,
            }
        }
        &[]
    }

    /// Returns whether the label set contains no labels.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Returns an owned copy of the label set. Allocates.
    pub fn to_owned(self) -> Labels {
        Labels(self.0.into())
    }
}

/// Compares label sets like `labels.Compare` of Prometheus: pair by pair, first names, then values.
/// A prefix is less than the longer set.
impl Ord for LabelsRef<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        // Names and values alternate, so the first different field decides. A set that ends is less
        // than one that continues.
        let equal = common_fields_len(self.0, other.0);
        let (mut left, mut right) = (&self.0[equal..], &other.0[equal..]);
        loop {
            match (take_prefixed(&mut left), take_prefixed(&mut right)) {
                (None, None) => return Ordering::Equal,
                (l, r) if l == r => {}
                (l, r) => return l.cmp(&r),
            }
        }
    }
}

/// Returns the length of the fields that both sets have in common at their start. Neighbours in
/// order share most fields, which are compared together.
fn common_fields_len(left: &[u8], right: &[u8]) -> usize {
    const WORD: usize = size_of::<u64>();
    let words = left.chunks_exact(WORD).zip(right.chunks_exact(WORD));
    let whole = WORD * words.take_while(|(l, r)| l == r).count();
    let bytes = left[whole..].iter().zip(&right[whole..]);
    let alike = whole + bytes.take_while(|(l, r)| l == r).count();
    let mut rest = left;
    let mut fields = 0;
    while take_prefixed(&mut rest).is_some() && left.len() - rest.len() <= alike {
        fields = left.len() - rest.len();
    }
    fields
}

impl PartialOrd for LabelsRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Labels {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_ref().cmp(&other.as_ref())
    }
}

impl PartialOrd for Labels {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Formats labels like Prometheus, with the metric name as an ordinary label: `{a="b", "c.d"="e"}`.
impl fmt::Display for LabelsRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (i, (name, value)) in self.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            let quoted = (!is_plain_name(name)).then(|| quote(name.as_bytes()));
            let name = quoted.as_deref().unwrap_or(name);
            write!(f, "{comma}{name}={}", quote(value))?;
        }
        f.write_str("}")
    }
}

/// Returns whether a label name needs no quotes in PromQL: letters, digits and underscores.
pub fn is_plain_name(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    !name.is_empty() && !name.as_bytes()[0].is_ascii_digit() && name.bytes().all(is_plain)
}

impl fmt::Debug for LabelsRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.as_ref(), f)
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.as_ref(), f)
    }
}

/// An iterator over the pairs of a canonical label set, in order of names. It ends at malformed
/// bytes.
#[derive(Clone, Debug)]
pub struct LabelsIter<'a> {
    rest: &'a [u8],
}

impl<'a> LabelsIter<'a> {
    /// Returns the canonical bytes of the remaining pairs, which are a label set themselves.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for LabelsIter<'a> {
    type Item = (&'a str, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let name = take_prefixed(&mut self.rest)?;
        let value = take_prefixed(&mut self.rest)?;
        Some((std::str::from_utf8(name).ok()?, value))
    }
}

#[inline]
pub(crate) fn take_prefixed<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take_uvarint(rest)?;
    let (head, tail) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = tail;
    Some(head)
}

#[inline]
pub(crate) fn take_uvarint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    if let Some((&short @ 0..0x80, tail)) = rest.split_first() {
        *rest = tail;
        return Some(u64::from(short));
    }
    for (i, byte) in rest.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            *rest = rest.get(i + 1..)?;
            return Some(value);
        }
    }
    None
}

/// Appends a pair in canonical form. The caller must append pairs in order of names.
pub fn push_pair(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    push_prefixed(out, name);
    push_prefixed(out, value);
}

/// Appends the length of `bytes` as a varint, followed by the bytes.
pub(crate) fn push_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    push_uvarint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends `n` as a varint: seven bits per byte, least significant first.
pub fn push_uvarint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push((n & 0x7f) as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Returns whether `bytes` are a label set in canonical form. Decoders of stored bytes must check
/// this.
pub fn is_canonical(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut previous: Option<&[u8]> = None;
    while !rest.is_empty() {
        let Some(name) = take_prefixed(&mut rest) else {
            return false;
        };
        let Some(value) = take_prefixed(&mut rest) else {
            return false;
        };
        let sorted = previous.is_none_or(|p| p < name);
        if !sorted || name.is_empty() || value.is_empty() || std::str::from_utf8(name).is_err() {
            return false;
        }
        previous = Some(name);
    }
    true
}

/// Modifies a label set pair by pair and builds the canonical form.
#[derive(Clone, Debug, Default)]
pub struct LabelsBuilder {
    /// The pairs, sorted by name. Names are unique, and values are not empty.
    pairs: Vec<(String, Vec<u8>)>,
}

impl LabelsBuilder {
    /// Creates a builder that contains the labels of `base`.
    pub fn from_labels(base: LabelsRef<'_>) -> Self {
        Self {
            pairs: base
                .iter()
                .map(|(n, v)| (n.to_owned(), v.to_vec()))
                .collect(),
        }
    }

    /// Sets `name` to `value`. An empty value removes the label.
    pub fn set(&mut self, name: &str, value: &[u8]) -> &mut Self {
        match self.pairs.binary_search_by(|(n, _)| n.as_str().cmp(name)) {
            Ok(i) if value.is_empty() => {
                self.pairs.remove(i);
            }
            Ok(i) => self.pairs[i].1 = value.to_vec(),
            Err(_) if value.is_empty() => {}
            Err(i) => self.pairs.insert(i, (name.to_owned(), value.to_vec())),
        }
        self
    }

    /// Removes the label `name` if it exists, and returns the builder.
    pub fn remove(&mut self, name: &str) -> &mut Self {
        self.set(name, &[])
    }

    /// Removes all labels for whose name `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) -> &mut Self {
        self.pairs.retain(|(n, _)| keep(n));
        self
    }

    /// Returns the pairs of name and value in order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.pairs.iter().map(|(n, v)| (n.as_str(), v.as_slice()))
    }

    /// Returns the value of `name`, or an empty value.
    pub fn get(&self, name: &str) -> &[u8] {
        match self.pairs.binary_search_by(|(n, _)| n.as_str().cmp(name)) {
            Ok(i) => &self.pairs[i].1,
            Err(_) => &[],
        }
    }

    /// Returns the label set in canonical form. The builder can be used further.
    pub fn build(&self) -> Labels {
        let mut out =
            Vec::with_capacity(self.pairs.iter().map(|(n, v)| n.len() + v.len() + 4).sum());
        for (name, value) in &self.pairs {
            push_pair(&mut out, name.as_bytes(), value);
        }
        Labels(out.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_from_pairs_any_order_is_canonical() {
        let l = Labels::from_pairs([("b", "2"), ("__name__", "m"), ("a", ""), ("b", "3")]);
        assert_eq!(l.to_string(), r#"{__name__="m", b="3"}"#);
        assert!(is_canonical(l.as_bytes()));
        assert_eq!((l.get("b"), l.get("a")), (&b"3"[..], &b""[..]));
    }

    #[test]
    fn labels_print_quotes_names_that_need_it() {
        let l = Labels::from_pairs([("c.d", "é\"\n"), ("0", "\x01"), ("_a1", "")]);
        assert_eq!(l.to_string(), r#"{"0"="\x01", "c.d"="é\"\n"}"#);
    }

    #[test]
    fn labels_compare_orders_as_prometheus() {
        let l = |pairs: &[(&str, &str)]| Labels::from_pairs(pairs.iter().copied());
        let sorted = [
            l(&[]),
            l(&[("a", "1")]),
            l(&[("a", "1"), ("b", "1")]),
            l(&[("a", "11")]),
            l(&[("aa", "0")]),
        ];
        for (i, a) in sorted.iter().enumerate() {
            for (j, b) in sorted.iter().enumerate() {
                assert_eq!(a.cmp(b), i.cmp(&j), "{a} {b}");
            }
        }
    }

    #[test]
    fn is_canonical_refuses_malformed_bytes() {
        let mut unsorted = Vec::new();
        push_pair(&mut unsorted, b"b", b"1");
        push_pair(&mut unsorted, b"a", b"1");
        let mut empty_value = Vec::new();
        push_pair(&mut empty_value, b"a", b"");
        let cases: [&[u8]; 6] = [
            &unsorted,
            &empty_value,
            b"\x01",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x01\xff\x01a",
            b"\x05a",
        ];
        for bytes in cases {
            assert!(!is_canonical(bytes), "{bytes:?}");
        }
    }
}
