//! Formats values of all types, including those with a `String` method of their own.

use super::printer::PrintfPrinter;
use crate::time::{format_duration, month_name, weekday_name};
use crate::value::{Bytes, GoIntType, TemplateSample, TemplateValue};
use std::rc::Rc;

/// Fixed address that replaces all pointers, so that the output is deterministic.
const ADDRESS: i64 = 0xc0_0000_0000;

/// Returns the output of the value's `String` method; `None` if its type has none.
pub(crate) fn own_text(value: &TemplateValue) -> Option<String> {
    Some(match value {
        TemplateValue::Int(GoIntType::Duration, nanos) => format_duration(*nanos),
        TemplateValue::Int(GoIntType::Month, month) => month_name(*month),
        TemplateValue::Int(GoIntType::Weekday, day) => weekday_name(*day),
        TemplateValue::Time(time) => time.to_string(),
        TemplateValue::Pointer(inside) => return own_text(inside),
        TemplateValue::Histogram(histogram) => {
            firn_model::histogram_text::histogram_text(histogram)
        }
        _ => return None,
    })
}

impl PrintfPrinter {
    /// Writes a value with the given verb, like an argument of `printf`.
    pub(super) fn value(&mut self, arg: &TemplateValue, verb: char) {
        let value = arg.clone().unwrap_interface();
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
                TemplateValue::Strings(_)
                | TemplateValue::Params(_)
                | TemplateValue::Texts(_)
                | TemplateValue::Args(_)
                | TemplateValue::Floats(_)
                | TemplateValue::Query(_)
                | TemplateValue::Sample(_)
                | TemplateValue::Pointer(_)
                | TemplateValue::Histogram(_) => self.address(),
                _ => self.bad_verb(&value, verb),
            },
            'w' => self.bad_verb(&value, verb),
            _ => self.shown(&value, verb, 0),
        }
    }

    fn bad_verb(&mut self, value: &TemplateValue, verb: char) {
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

    fn shown(&mut self, value: &TemplateValue, verb: char, depth: usize) {
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
            TemplateValue::Bool(value) => self.boolean(*value, verb),
            TemplateValue::Int(int, value) => self.integer(*value, *int != GoIntType::Byte, verb),
            TemplateValue::Float(value) => self.float(*value, verb),
            TemplateValue::Complex(real, imaginary) => self.complex(*real, *imaginary, verb),
            TemplateValue::String(text) | TemplateValue::Html(text) => self.text(text, verb),
            _ => {
                self.composed(value, verb, depth);
                true
            }
        };
        if !is_fit {
            self.bad_verb(value, verb);
        }
    }

    fn composed(&mut self, value: &TemplateValue, verb: char, depth: usize) {
        match value {
            TemplateValue::Strings(map) => {
                let string = |(key, value): (&Bytes, &Bytes)| {
                    (key.clone(), TemplateValue::String(value.clone()))
                };
                let pairs: Vec<_> = map.iter().map(string).collect();
                self.map(value, &pairs, verb, depth);
            }
            TemplateValue::Args(args) => {
                let pair = |(key, value): (&Bytes, &TemplateValue)| (key.clone(), value.clone());
                let pairs: Vec<_> = args.entries().iter().map(pair).collect();
                self.map(value, &pairs, verb, depth);
            }
            TemplateValue::Floats(floats) => {
                let floats: Vec<_> = floats
                    .iter()
                    .map(|float| TemplateValue::Float(*float))
                    .collect();
                self.slice(value, &floats, verb, depth);
            }
            TemplateValue::Query(query) => {
                let samples = (0..query.len()).map(|index| TemplateValue::Sample(query.get(index)));
                self.slice(value, &samples.collect::<Vec<_>>(), verb, depth);
            }
            TemplateValue::Sample(Some(sample)) if depth == 0 => {
                self.push(b"&");
                self.sample(sample, verb, depth + 1);
            }
            TemplateValue::Params(map) => {
                let pair = |(key, value): (&Bytes, &Rc<[Bytes]>)| {
                    (key.clone(), TemplateValue::Texts(Rc::clone(value)))
                };
                let pairs: Vec<_> = map.iter().map(pair).collect();
                self.map(value, &pairs, verb, depth);
            }
            TemplateValue::Texts(texts) => {
                let texts: Vec<_> = texts.iter().cloned().map(TemplateValue::String).collect();
                self.slice(value, &texts, verb, depth);
            }
            TemplateValue::Data(data) => self.structure(value, &data.fields, verb, depth),
            TemplateValue::Interface(Some(inside)) => self.shown(inside, verb, depth + 1),
            TemplateValue::Interface(None) if self.flags.sharp_v => self.push(b"interface {}(nil)"),
            TemplateValue::Invalid
            | TemplateValue::Interface(None)
            | TemplateValue::Sample(None) => self.push(b"<nil>"),
            TemplateValue::Time(_) => self.push_str(&own_text(value).unwrap_or_default()),
            _ => self.address(),
        }
    }

    /// Writes the fields of a sample, the target of a sample pointer.
    pub(super) fn sample(&mut self, sample: &TemplateSample, verb: char, depth: usize) {
        if self.flags.sharp_v {
            self.push(b"template.sample");
        }
        let fields = [
            ("Labels", TemplateValue::Strings(Rc::clone(&sample.labels))),
            ("Value", sample.value.clone()),
        ];
        self.fields(&fields, verb, depth);
    }

    fn structure(
        &mut self,
        value: &TemplateValue,
        fields: &[(&str, TemplateValue)],
        verb: char,
        depth: usize,
    ) {
        if self.flags.sharp_v {
            self.push_str(&value.type_name());
        }
        self.fields(fields, verb, depth);
    }

    fn fields(&mut self, fields: &[(&str, TemplateValue)], verb: char, depth: usize) {
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

    fn map(
        &mut self,
        value: &TemplateValue,
        pairs: &[(Bytes, TemplateValue)],
        verb: char,
        depth: usize,
    ) {
        if self.flags.sharp_v {
            self.push_str(&format!("{}{{", value.type_name()))
        } else {
            self.push(b"map[")
        }
        for (index, (key, value)) in pairs.iter().enumerate() {
            self.separate(index);
            self.shown(&TemplateValue::String(key.clone()), verb, depth + 1);
            self.push(b":");
            self.shown(value, verb, depth + 1);
        }
        self.push(if self.flags.sharp_v { b"}" } else { b"]" });
    }

    fn slice(
        &mut self,
        value: &TemplateValue,
        elements: &[TemplateValue],
        verb: char,
        depth: usize,
    ) {
        if self.flags.sharp_v {
            self.push_str(&format!("{}{{", value.type_name()))
        } else {
            self.push(b"[")
        }
        for (index, element) in elements.iter().enumerate() {
            self.separate(index);
            self.shown(element, verb, depth + 1);
        }
        self.push(if self.flags.sharp_v { b"}" } else { b"]" });
    }
}
