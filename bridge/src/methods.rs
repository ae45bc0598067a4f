//! Methods of Python's str, dict and list where minijinja-contrib has none or one that differs; the rest is its.

use crate::digits;
use minijinja::value::{from_args, Tuple, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

/// Pays for going over a string once more.
pub fn charge(state: &State, value: &Value) -> Result<(), Error> {
    state.consume_fuel(value.as_str().map_or(0, |s| s.len() as u64 / 64))
}

pub fn call(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let own = match value.kind() {
        ValueKind::String => string(state, value.as_str().unwrap_or_default(), method, args),
        ValueKind::Map => map(method),
        ValueKind::Seq => list(value, method, args),
        _ => Ok(None),
    }?;
    match own {
        Some(result) => Ok(result),
        None => minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// What str.isspace is true for.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

pub fn strip<'a>(text: &'a str, chars: Option<&str>, left: bool, right: bool) -> &'a str {
    let set: Option<Vec<char>> = chars.map(|c| c.chars().collect());
    let strips = |c: char| set.as_ref().map_or_else(|| is_space(c), |set| set.contains(&c));
    let text = if left { text.trim_start_matches(strips) } else { text };
    if right {
        text.trim_end_matches(strips)
    } else {
        text
    }
}

/// At most `most` cuts at runs of white space, from the left or the right.
fn split_space(text: &str, most: usize, from_right: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = strip(text, None, true, true);
    while !rest.is_empty() {
        if parts.len() == most {
            // Python strips the remainder on the side it came from alone, which the strip above has done on both:
            // the other side keeps its white space.
            let start = rest.as_ptr() as usize - text.as_ptr() as usize;
            parts.push(if from_right {
                &text[..start + rest.len()]
            } else {
                &text[start..]
            });
            break;
        }
        let cut = if from_right { rest.rfind(is_space) } else { rest.find(is_space) };
        match cut {
            None => {
                parts.push(rest);
                break;
            }
            Some(at) if from_right => {
                let word = at + rest[at..].chars().next().map_or(0, char::len_utf8);
                parts.push(&rest[word..]);
                rest = strip(&rest[..at], None, false, true);
            }
            Some(at) => {
                parts.push(&rest[..at]);
                rest = strip(&rest[at..], None, true, false);
            }
        }
    }
    if from_right {
        parts.reverse();
    }
    parts
}

fn split<'a>(text: &'a str, sep: Option<&str>, most: Option<i64>, from_right: bool) -> Result<Vec<&'a str>, Error> {
    let most = match most {
        Some(n) if n >= 0 => n as usize,
        _ => usize::MAX - 1,
    };
    let Some(sep) = sep else {
        return Ok(split_space(text, most, from_right));
    };
    if sep.is_empty() {
        return Err(wrong("empty separator".into()));
    }
    if from_right {
        let mut parts: Vec<&str> = text.rsplitn(most + 1, sep).collect();
        parts.reverse();
        return Ok(parts);
    }
    Ok(text.splitn(most + 1, sep).collect())
}

fn split_lines(text: &str, keep: bool) -> Vec<&str> {
    let breaks = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let Some(at) = rest.find(breaks) else {
            lines.push(rest);
            break;
        };
        let mut end = at + rest[at..].chars().next().map_or(0, char::len_utf8);
        if rest[at..].starts_with("\r\n") {
            end = at + 2;
        }
        lines.push(&rest[..if keep { end } else { at }]);
        rest = &rest[end..];
    }
    lines
}

/// text[start:end] in characters, as a byte range; None when start lies beyond the end.
fn char_range(text: &str, start: Option<i64>, end: Option<i64>) -> Option<(usize, usize)> {
    if start.is_none() && end.is_none() {
        return Some((0, text.len()));
    }
    let n = text.chars().count() as i64;
    let clamp = |i: i64| if i < 0 { (i + n).max(0) } else { i };
    let (start, end) = (clamp(start.unwrap_or(0)), clamp(end.unwrap_or(n)).min(n));
    if start > end {
        return None;
    }
    let byte = |i: i64| text.char_indices().nth(i as usize).map_or(text.len(), |(at, _)| at);
    Some((byte(start), byte(end)))
}

/// The character index of `what`, searched from the left or the right.
fn find(text: &str, what: &str, start: Option<i64>, end: Option<i64>, from_right: bool) -> i64 {
    let Some((from, to)) = char_range(text, start, end) else {
        return -1;
    };
    let part = &text[from..to];
    let at = if from_right { part.rfind(what) } else { part.find(what) };
    at.map_or(-1, |at| text[..from + at].chars().count() as i64)
}

fn affix(
    text: &str,
    args: &[Value],
    has: fn(&str, &str) -> bool,
) -> Result<Value, Error> {
    let (what, start, end): (&Value, Option<i64>, Option<i64>) = from_args(args)?;
    let Some((from, to)) = char_range(text, start, end) else {
        return Ok(Value::from(false));
    };
    let part = &text[from..to];
    if let Some(what) = what.as_str() {
        return Ok(Value::from(has(part, what)));
    }
    if !what.is_tuple() {
        return Err(wrong(format!("first arg must be str or a tuple of str, not {}", what.kind())));
    }
    for one in what.try_iter()? {
        let one = one.as_str().ok_or_else(|| wrong("tuple for startswith must only contain str".into()))?;
        if has(part, one) {
            return Ok(Value::from(true));
        }
    }
    Ok(Value::from(false))
}

fn strings(parts: Vec<&str>) -> Value {
    parts.into_iter().map(Value::from).collect()
}

fn partition(text: &str, args: &[Value], from_right: bool) -> Result<Value, Error> {
    let (sep,): (&str,) = from_args(args)?;
    if sep.is_empty() {
        return Err(wrong("empty separator".into()));
    }
    let at = if from_right { text.rfind(sep) } else { text.find(sep) };
    let parts = match at {
        Some(at) => [&text[..at], sep, &text[at + sep.len()..]],
        None if from_right => ["", "", text],
        None => [text, "", ""],
    };
    Ok(Value::from(Tuple::from(parts.map(Value::from))))
}

pub fn pad(state: &State, text: &str, args: &[Value], left: fn(i64, i64) -> i64) -> Result<Value, Error> {
    let (width, fill): (i64, Option<&str>) = from_args(args)?;
    let fill = fill.unwrap_or(" ");
    if fill.chars().count() != 1 {
        return Err(wrong("the fill character must be exactly one character long".into()));
    }
    let missing = width - text.chars().count() as i64;
    if missing <= 0 {
        return Ok(Value::from(text));
    }
    state.consume_fuel(missing as u64 / 16 + 1)?;
    let before = left(missing, width) as usize;
    let after = missing as usize - before;
    Ok(Value::from(format!("{}{text}{}", fill.repeat(before), fill.repeat(after))))
}

fn zfill(state: &State, text: &str, args: &[Value]) -> Result<Value, Error> {
    let (width,): (i64,) = from_args(args)?;
    let missing = width - text.chars().count() as i64;
    if missing <= 0 {
        return Ok(Value::from(text));
    }
    state.consume_fuel(missing as u64 / 16 + 1)?;
    let sign = text.len() - text.trim_start_matches(['+', '-']).len().max(text.len().saturating_sub(1));
    Ok(Value::from(format!("{}{}{}", &text[..sign], "0".repeat(missing as usize), &text[sign..])))
}

/// Upper case at the start of every run of cased characters, lower case inside.
fn is_title(text: &str) -> bool {
    let (mut inside, mut any) = (false, false);
    for c in text.chars() {
        if c.is_uppercase() && inside || c.is_lowercase() && !inside {
            return false;
        }
        inside = c.is_uppercase() || c.is_lowercase();
        any = any || inside;
    }
    any
}

fn swap_case(text: &str) -> String {
    text.chars()
        .flat_map(|c| -> Vec<char> {
            if c.is_uppercase() {
                c.to_lowercase().collect()
            } else {
                c.to_uppercase().collect()
            }
        })
        .collect()
}

fn join(state: &State, text: &str, args: &[Value]) -> Result<Value, Error> {
    let (items,): (&Value,) = from_args(args)?;
    let mut out = String::new();
    for (i, item) in items.try_iter()?.enumerate() {
        let item = item
            .as_str()
            .ok_or_else(|| wrong(format!("sequence item {i}: expected str instance, {} found", item.kind())))?
            .to_string();
        state.consume_fuel((item.len() + text.len()) as u64 / 64 + 1)?;
        if i > 0 {
            out.push_str(text);
        }
        out.push_str(&item);
    }
    Ok(Value::from(out))
}

fn string(state: &State, text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let value = match method {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            Value::from(strip(text, chars, method != "rstrip", method != "lstrip"))
        }
        "split" | "rsplit" => {
            let (sep, most): (Option<&str>, Option<i64>) = from_args(args)?;
            strings(split(text, sep, most, method == "rsplit")?)
        }
        "splitlines" => {
            let (keep,): (Option<bool>,) = from_args(args)?;
            strings(split_lines(text, keep.unwrap_or(false)))
        }
        "partition" => partition(text, args, false)?,
        "rpartition" => partition(text, args, true)?,
        "startswith" => affix(text, args, |s, p| s.starts_with(p))?,
        "endswith" => affix(text, args, |s, p| s.ends_with(p))?,
        "removeprefix" => {
            let (what,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(what).unwrap_or(text))
        }
        "removesuffix" => {
            let (what,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(what).unwrap_or(text))
        }
        "find" | "rfind" | "index" | "rindex" => {
            let (what, start, end): (&str, Option<i64>, Option<i64>) = from_args(args)?;
            let at = find(text, what, start, end, method.starts_with('r'));
            if at < 0 && method.ends_with("index") {
                return Err(wrong("substring not found".into()));
            }
            Value::from(at)
        }
        "count" => {
            let (what, start, end): (&str, Option<i64>, Option<i64>) = from_args(args)?;
            Value::from(match char_range(text, start, end) {
                None => 0,
                Some((from, to)) if what.is_empty() => text[from..to].chars().count() + 1,
                Some((from, to)) => text[from..to].matches(what).count(),
            })
        }
        "isspace" => {
            let () = from_args(args)?;
            Value::from(!text.is_empty() && text.chars().all(is_space))
        }
        "isdecimal" => {
            let () = from_args(args)?;
            Value::from(!text.is_empty() && text.chars().all(digits::is_decimal))
        }
        "isdigit" => {
            let () = from_args(args)?;
            Value::from(!text.is_empty() && text.chars().all(digits::is_digit))
        }
        "istitle" => {
            let () = from_args(args)?;
            Value::from(is_title(text))
        }
        "swapcase" => {
            let () = from_args(args)?;
            Value::from(swap_case(text))
        }
        "center" => pad(state, text, args, |missing, width| missing / 2 + (missing & width & 1))?,
        "ljust" => pad(state, text, args, |_, _| 0)?,
        "rjust" => pad(state, text, args, |missing, _| missing)?,
        "zfill" => zfill(state, text, args)?,
        "join" => join(state, text, args)?,
        _ => return Ok(None),
    };
    Ok(Some(value))
}

fn map(method: &str) -> Result<Option<Value>, Error> {
    match method {
        "update" | "pop" | "popitem" | "clear" | "setdefault" => Err(changing(method)),
        _ => Ok(None),
    }
}

fn changing(method: &str) -> Error {
    wrong(format!("{method} is not allowed: a template changes nothing"))
}

fn list(value: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    match method {
        "append" | "extend" | "insert" | "pop" | "remove" | "clear" | "sort" | "reverse" => Err(changing(method)),
        "index" => {
            let (what,): (&Value,) = from_args(args)?;
            for (i, item) in value.try_iter()?.enumerate() {
                if item == *what {
                    return Ok(Some(Value::from(i)));
                }
            }
            Err(wrong("the value is not in the list".into()))
        }
        "copy" => Ok(Some(value.clone())),
        _ => Ok(None),
    }
}
