//! `tojson` as transformers defines it: Python's json.dumps with ensure_ascii=False by default, no HTML escaping.

use crate::number::{python_float, NumberText};
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

const MAX_DEPTH: usize = 400;

struct Style {
    ascii: bool,
    sort: bool,
    indent: Option<String>,
    item: String,
    key: String,
}

struct Writer<'a, 'b> {
    out: String,
    charged: usize,
    style: Style,
    state: &'a State<'b, 'b>,
}

fn wrong(message: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

pub fn tojson(
    state: &State,
    value: &Value,
    positional: minijinja::value::Rest<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    const NAMES: [&str; 4] = ["ensure_ascii", "indent", "separators", "sort_keys"];
    let mut given: [Option<Value>; 4] = [None, None, None, None];
    if positional.len() > NAMES.len() {
        return Err(Error::from(ErrorKind::TooManyArguments));
    }
    for (slot, value) in given.iter_mut().zip(positional.iter()) {
        *slot = Some(value.clone());
    }
    for (slot, name) in given.iter_mut().zip(NAMES) {
        if kwargs.has(name) {
            *slot = Some(kwargs.get::<Value>(name)?);
        }
    }
    kwargs.assert_all_used()?;
    let [ascii, indent, separators, sort] = given;
    let indent = match indent {
        None => None,
        Some(v) if v.is_none() => None,
        Some(v) => match (v.as_str(), v.as_i64()) {
            (Some(text), _) => Some(text.to_string()),
            (None, Some(n)) if n <= 256 => Some(" ".repeat(n.max(0) as usize)),
            _ => return Err(wrong("tojson: indent must be a number or a string")),
        },
    };
    let (item, key) = match separators {
        Some(v) if !v.is_none() => {
            let pair: Vec<Value> = v.try_iter()?.collect();
            match pair.as_slice() {
                [item, key] => (item.to_string(), key.to_string()),
                _ => return Err(wrong("tojson: separators must be a pair")),
            }
        }
        _ if indent.is_some() => (",".into(), ": ".into()),
        _ => (", ".into(), ": ".into()),
    };
    let mut writer = Writer {
        out: String::new(),
        charged: 0,
        style: Style {
            ascii: ascii.is_some_and(|v| v.is_true()),
            sort: sort.is_some_and(|v| v.is_true()),
            indent,
            item,
            key,
        },
        state,
    };
    writer.value(value, 0)?;
    Ok(Value::from(writer.out))
}

impl Writer<'_, '_> {
    /// Pays for what was written since the last time, so that a value which is written out many times over cannot take
    /// all memory.
    fn charge(&mut self) -> Result<(), Error> {
        let new = self.out.len() - self.charged;
        if new >= 4096 {
            self.charged = self.out.len();
            self.state.consume_fuel(new as u64 / 64)?;
        }
        Ok(())
    }

    fn string(&mut self, text: &str) {
        use std::fmt::Write;
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if (c as u32) < 0x20 || (self.style.ascii && c as u32 > 0x7E) => {
                    let mut units = [0u16; 2];
                    for unit in c.encode_utf16(&mut units) {
                        let _ = write!(self.out, "\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.style.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn number(&mut self, value: &Value) -> Result<(), Error> {
        if value.is_integer() {
            self.out.push_str(&value.to_string());
            return Ok(());
        }
        let float = f64::try_from(value.clone())?;
        self.out.push_str(&json_float(float));
        Ok(())
    }

    fn key(&mut self, key: &Value) -> Result<(), Error> {
        match key.kind() {
            ValueKind::String => self.string(key.as_str().unwrap_or_default()),
            ValueKind::Bool => self.string(if key.is_true() { "true" } else { "false" }),
            ValueKind::None => self.string("null"),
            ValueKind::Number if key.is_integer() => self.string(&key.to_string()),
            ValueKind::Number => {
                let text = json_float(f64::try_from(key.clone())?);
                self.string(&text);
            }
            kind => return Err(wrong(format!("tojson: keys must be str, int, float, bool or None, not {kind}"))),
        }
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut pairs: Vec<(Value, Value)> = match value.as_object().and_then(|o| o.try_iter_pairs()) {
            Some(pairs) => pairs.collect(),
            None => Vec::new(),
        };
        if self.style.sort {
            pairs.sort_by(|a, b| a.0.cmp(&b.0));
        }
        if pairs.is_empty() {
            self.out.push_str("{}");
            return Ok(());
        }
        self.out.push('{');
        for (i, (key, item)) in pairs.iter().enumerate() {
            if i > 0 {
                self.out.push_str(&self.style.item.clone());
            }
            self.line(depth + 1);
            self.key(key)?;
            self.out.push_str(&self.style.key.clone());
            self.value(item, depth + 1)?;
        }
        self.line(depth);
        self.out.push('}');
        Ok(())
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut first = true;
        for item in value.try_iter()? {
            if first {
                self.out.push('[');
            } else {
                self.out.push_str(&self.style.item.clone());
            }
            first = false;
            self.line(depth + 1);
            self.value(&item, depth + 1)?;
        }
        if first {
            self.out.push_str("[]");
            return Ok(());
        }
        self.line(depth);
        self.out.push(']');
        Ok(())
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(wrong("tojson: nested too deeply"));
        }
        self.charge()?;
        if let Some(number) = value.downcast_object_ref::<NumberText>() {
            self.out.push_str(number.text());
            return Ok(());
        }
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.number(value)?,
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq => self.list(value, depth)?,
            ValueKind::Map => self.map(value, depth)?,
            ValueKind::Undefined => return Err(wrong("tojson: the value is undefined")),
            kind => return Err(wrong(format!("tojson: a {kind} is not JSON serializable"))),
        }
        Ok(())
    }
}

fn json_float(value: f64) -> String {
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 { "Infinity" } else { "-Infinity" }.into()
    } else {
        python_float(value)
    }
}
