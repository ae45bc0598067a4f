//! Numbers of the context that print otherwise than the template engine would print them: integers beyond its range, and
//! numbers that are to keep the text they came with. The engine cannot compute with these. Floats that are only written
//! otherwise (with an exponent) stay the engine's own, so that comparing them is right: what prints them minds that.

use minijinja::value::{DynObject, Object, ObjectRepr};
use minijinja::Value;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

#[derive(Debug)]
pub struct NumberText {
    text: String,
    value: f64,
    integer: bool,
}

impl NumberText {
    pub fn is_integer(&self) -> bool {
        self.integer
    }

    /// What `tojson` writes.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl Object for NumberText {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn is_true(self: &Arc<Self>) -> bool {
        self.value != 0.0
    }

    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<Ordering> {
        let other = other.downcast_ref::<Self>()?;
        let order = self.value.partial_cmp(&other.value)?;
        Some(order.then_with(|| self.text.cmp(&other.text)))
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A float as Python's repr writes it: the shortest digits that read back the same, an exponent below 1e-4 and from
/// 1e16 on.
pub fn python_float(value: f64) -> String {
    if value.is_nan() {
        return "nan".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.into();
    }
    let text = format!("{value:?}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let exponent: i32 = exponent.parse().unwrap_or(0);
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        None => text,
    }
}

fn is_integer_text(text: &str) -> bool {
    !text.contains(['.', 'e', 'E'])
}

/// The value of a JSON number; `verbatim`: it prints as `text`, else as Python prints the number it reads.
pub fn parse(text: &str, verbatim: bool) -> Value {
    let integer = is_integer_text(text);
    let float: f64 = text.parse().unwrap_or(f64::NAN);
    let (native, python) = if integer {
        let python = match text {
            "-0" => "0",
            _ => text,
        };
        (text.parse::<i128>().ok().map(Value::from), python.to_string())
    } else {
        (Some(Value::from(float)), python_float(float))
    };
    let print = if verbatim { text } else { &python };
    match native {
        Some(native) if !verbatim || native.to_string() == print => native,
        _ => Value::from_object(NumberText {
            text: print.to_string(),
            value: float,
            integer,
        }),
    }
}
