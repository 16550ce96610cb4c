//! Formats values of all types, including those with a `String` method of their own.

use super::printer::Printer;
use crate::template::time::{duration_text, month_name, weekday_name};
use crate::template::value::{Bytes, IntType, Sample, Value};
use std::rc::Rc;

/// Fixed address that replaces all pointers, so that the output is deterministic.
const ADDRESS: i64 = 0xc0_0000_0000;

/// Returns the output of the value's `String` method; `None` if its type has none.
pub(in crate::template) fn own_text(value: &Value) -> Option<String> {
    Some(match value {
        Value::Int(IntType::Duration, nanos) => duration_text(*nanos),
        Value::Int(IntType::Month, month) => month_name(*month),
        Value::Int(IntType::Weekday, day) => weekday_name(*day),
        Value::Time(time) => time.to_string(),
        Value::Pointer(inside) => return own_text(inside),
        Value::Histogram(histogram) => firn_promql::texts::histogram(histogram),
        _ => return None,
    })
}

impl Printer {
    /// Writes a value with the given verb, like an argument of `printf`.
    pub(super) fn value(&mut self, arg: &Value, verb: char) {
        let value = arg.clone().inside();
        if !value.is_valid() {
            match verb {
                'T' | 'v' => self.pad(b"<nil>"),
                _ => self.bad_verb(&value, verb),
            }
            return;
        }
        match verb {
            'T' => self.pad(value.type_name().as_bytes()),
            'p' => match value {
                Value::Strings(_)
                | Value::Params(_)
                | Value::Texts(_)
                | Value::Args(_)
                | Value::Floats(_)
                | Value::Query(_)
                | Value::Sample(_)
                | Value::Pointer(_)
                | Value::Histogram(_) => self.address(),
                _ => self.bad_verb(&value, verb),
            },
            'w' => self.bad_verb(&value, verb),
            _ => self.shown(&value, verb, 0),
        }
    }

    fn bad_verb(&mut self, value: &Value, verb: char) {
        self.push(b"%!");
        self.push_char(verb);
        self.push(b"(");
        self.typed(value);
        self.push(b")");
    }

    fn address(&mut self) {
        let sharp = self.flags.sharp;
        self.flags.sharp = !sharp;
        self.integer(ADDRESS, false, 'x');
        self.flags.sharp = sharp;
    }

    fn shown(&mut self, value: &Value, verb: char, depth: usize) {
        // A value may contain the same value many times, so stop early when the buffer is full.
        if self.is_full {
            return;
        }
        if !self.flags.sharp_v
            && matches!(verb, 'v' | 's' | 'x' | 'X' | 'q')
            && let Some(text) = own_text(value)
        {
            self.text(text.as_bytes(), verb);
            return;
        }
        let is_fit = match value {
            Value::Bool(value) => self.boolean(*value, verb),
            Value::Int(int, value) => self.integer(*value, *int != IntType::Byte, verb),
            Value::Float(value) => self.float(*value, verb),
            Value::Complex(real, imaginary) => self.complex(*real, *imaginary, verb),
            Value::String(text) | Value::Html(text) => self.text(text, verb),
            _ => {
                self.composed(value, verb, depth);
                true
            }
        };
        if !is_fit {
            self.bad_verb(value, verb);
        }
    }

    fn composed(&mut self, value: &Value, verb: char, depth: usize) {
        match value {
            Value::Strings(map) => {
                let string =
                    |(key, value): (&Bytes, &Bytes)| (key.clone(), Value::String(value.clone()));
                let pairs: Vec<_> = map.iter().map(string).collect();
                self.map(value, &pairs, verb, depth);
            }
            Value::Args(map) => {
                let pair = |(key, value): (&Bytes, &Value)| (key.clone(), value.clone());
                let pairs: Vec<_> = map.iter().map(pair).collect();
                self.map(value, &pairs, verb, depth);
            }
            Value::Floats(floats) => {
                let floats: Vec<_> = floats.iter().map(|float| Value::Float(*float)).collect();
                self.slice(value, &floats, verb, depth);
            }
            Value::Query(query) => {
                let samples = (0..query.len()).map(|index| Value::Sample(query.get(index)));
                self.slice(value, &samples.collect::<Vec<_>>(), verb, depth);
            }
            Value::Sample(Some(sample)) if depth == 0 => {
                self.push(b"&");
                self.sample(sample, verb, depth + 1);
            }
            Value::Params(map) => {
                let pair = |(key, value): (&Bytes, &Rc<[Bytes]>)| {
                    (key.clone(), Value::Texts(Rc::clone(value)))
                };
                let pairs: Vec<_> = map.iter().map(pair).collect();
                self.map(value, &pairs, verb, depth);
            }
            Value::Texts(texts) => {
                let texts: Vec<_> = texts.iter().cloned().map(Value::String).collect();
                self.slice(value, &texts, verb, depth);
            }
            Value::Data(data) => self.structure(value, &data.fields, verb, depth),
            Value::Interface(Some(inside)) => self.shown(inside, verb, depth + 1),
            Value::Interface(None) if self.flags.sharp_v => self.push(b"interface {}(nil)"),
            Value::Invalid | Value::Interface(None) | Value::Sample(None) => self.push(b"<nil>"),
            Value::Time(_) => self.push_str(&own_text(value).unwrap_or_default()),
            _ => self.address(),
        }
    }

    /// Writes the fields of a sample, the target of a sample pointer.
    pub(super) fn sample(&mut self, sample: &Sample, verb: char, depth: usize) {
        if self.flags.sharp_v {
            self.push(b"template.sample");
        }
        let fields = [
            ("Labels", Value::Strings(Rc::clone(&sample.labels))),
            ("Value", sample.value.clone()),
        ];
        self.fields(&fields, verb, depth);
    }

    fn structure(&mut self, value: &Value, fields: &[(&str, Value)], verb: char, depth: usize) {
        if self.flags.sharp_v {
            self.push_str(&value.type_name());
        }
        self.fields(fields, verb, depth);
    }

    fn fields(&mut self, fields: &[(&str, Value)], verb: char, depth: usize) {
        self.push(b"{");
        for (index, (name, value)) in fields.iter().enumerate() {
            self.separate(index);
            if self.flags.plus_v || self.flags.sharp_v {
                self.push_str(name);
                self.push(b":");
            }
            self.shown(value, verb, depth + 1);
        }
        self.push(b"}");
    }

    fn separate(&mut self, index: usize) {
        if index > 0 {
            self.push(if self.flags.sharp_v { b", " } else { b" " });
        }
    }

    fn map(&mut self, value: &Value, pairs: &[(Bytes, Value)], verb: char, depth: usize) {
        match self.flags.sharp_v {
            true => self.push_str(&format!("{}{{", value.type_name())),
            false => self.push(b"map["),
        }
        for (index, (key, value)) in pairs.iter().enumerate() {
            self.separate(index);
            self.shown(&Value::String(key.clone()), verb, depth + 1);
            self.push(b":");
            self.shown(value, verb, depth + 1);
        }
        self.push(if self.flags.sharp_v { b"}" } else { b"]" });
    }

    fn slice(&mut self, value: &Value, elements: &[Value], verb: char, depth: usize) {
        match self.flags.sharp_v {
            true => self.push_str(&format!("{}{{", value.type_name())),
            false => self.push(b"["),
        }
        for (index, element) in elements.iter().enumerate() {
            self.separate(index);
            self.shown(element, verb, depth + 1);
        }
        self.push(if self.flags.sharp_v { b"}" } else { b"]" });
    }
}
