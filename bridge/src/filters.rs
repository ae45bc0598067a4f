//! Filters that Jinja2 has and the engine has not, or has otherwise.

use crate::number::{python_float, NumberText};
use crate::methods;
use minijinja::value::{Kwargs, Rest};
use minijinja::{Environment, Error, ErrorKind, State, Value};

fn is_float(value: &Value) -> bool {
    value.is_number() && !value.is_integer()
}

/// What Python's str() gives; the engine differs in floats alone.
pub fn print(value: &Value) -> String {
    match f64::try_from(value.clone()) {
        Ok(float) if is_float(value) => python_float(float),
        _ => value.to_string(),
    }
}

fn string(value: &Value) -> Value {
    if value.as_str().is_some() {
        return value.clone();
    }
    Value::from(print(value))
}

fn trim(state: &State, value: &Value, chars: Option<&str>) -> Result<Value, Error> {
    methods::charge(state, value)?;
    let text = print(value);
    Ok(Value::from(methods::strip(&text, chars, true, true)))
}

fn center(state: &State, value: &Value, width: Option<i64>) -> Result<Value, Error> {
    let args = [Value::from(width.unwrap_or(80))];
    methods::pad(state, &print(value), &args, |missing, width| missing / 2 + (missing & width & 1))
}

fn wordcount(state: &State, value: &Value) -> Result<usize, Error> {
    methods::charge(state, value)?;
    let text = print(value);
    Ok(text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|w| !w.is_empty()).count())
}

/// The number that a value holds or spells; Python's int() and float() take blanks around it and underscores in it.
fn text_of(value: &Value) -> Option<String> {
    let text = match value.downcast_object_ref::<NumberText>() {
        Some(number) => number.text().to_string(),
        None => value.as_str()?.to_string(),
    };
    Some(methods::strip(&text, None, true, true).replace('_', ""))
}

fn float_of(text: &str) -> Option<f64> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_start_matches(['+', '-']);
    let word = matches!(digits, "inf" | "infinity" | "nan");
    (word || digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')).then(|| lower.parse().ok())?
}

fn float(value: &Value, default: Option<Value>) -> Value {
    let number = match text_of(value) {
        Some(text) => float_of(&text),
        None => f64::try_from(value.clone()).ok(),
    };
    number.map(Value::from).unwrap_or_else(|| default.unwrap_or_else(|| Value::from(0.0)))
}

fn based(text: &str, base: u32) -> Option<i128> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (base, digits) = match (base, lower.get(..2)) {
        (0 | 16, Some("0x")) => (16, &lower[2..]),
        (0 | 8, Some("0o")) => (8, &lower[2..]),
        (0 | 2, Some("0b")) => (2, &lower[2..]),
        (0, _) => (10, &lower[..]),
        (base, _) => (base, &lower[..]),
    };
    if !(2..=36).contains(&base) || digits.starts_with(['+', '-']) {
        return None;
    }
    Some(sign * i128::from_str_radix(digits, base).ok()?)
}

fn int(value: &Value, default: Option<Value>, base: Option<u32>) -> Value {
    let whole = |float: f64| float.is_finite().then_some(float.trunc() as i128);
    let number = match text_of(value) {
        Some(text) => based(&text, base.unwrap_or(10)).or_else(|| float_of(&text).and_then(whole)),
        None if is_float(value) => f64::try_from(value.clone()).ok().and_then(whole),
        None => i128::try_from(value.clone()).ok(),
    };
    number.map(Value::from).unwrap_or_else(|| default.unwrap_or_else(|| Value::from(0)))
}

/// `truncate(length=255, killwords=False, end="...", leeway=5)`.
fn truncate(state: &State, value: &Value, given: Rest<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    methods::charge(state, value)?;
    let option = |i: usize, name: &str| -> Result<Option<Value>, Error> {
        Ok(given.get(i).cloned().or(kwargs.get(name)?))
    };
    let number = |value: Option<Value>, default: usize| value.map_or(Ok(default), usize::try_from);
    let length = number(option(0, "length")?, 255)?;
    let kill_words = option(1, "killwords")?.is_some_and(|v| v.is_true());
    let end = option(2, "end")?.map_or("...".to_string(), |v| v.to_string());
    let leeway = number(option(3, "leeway")?, 5)?;
    kwargs.assert_all_used()?;
    let text = print(value);
    let room = end.chars().count();
    if length < room {
        return Err(Error::new(ErrorKind::InvalidOperation, format!("truncate: expected length >= {room}, got {length}")));
    }
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(Value::from(text));
    }
    let cut: String = text.chars().take(length - room).collect();
    let kept = match cut.rfind(' ') {
        Some(at) if !kill_words => &cut[..at],
        _ => &cut[..],
    };
    Ok(Value::from(format!("{kept}{end}")))
}

pub fn add(env: &mut Environment<'static>) {
    env.add_filter("string", string);
    env.add_filter("trim", trim);
    env.add_filter("center", center);
    env.add_filter("wordcount", wordcount);
    env.add_filter("int", int);
    env.add_filter("float", float);
    env.add_filter("truncate", truncate);
    env.set_formatter(|out, state, value| {
        if is_float(value) {
            return out.write_str(&print(value)).map_err(Error::from);
        }
        minijinja::escape_formatter(out, state, value)
    });
}
