//! The JSON of a render call to the engine's values: key order kept, numbers as `number.rs` has it.

use crate::{number, Failure, CONTEXT};
use minijinja::Value;

/// Deeper than any document that the C side lets through; recursion stays within a small thread's stack.
const MAX_DEPTH: usize = 256;

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

pub fn parse(text: &str) -> Result<Value, Failure> {
    let mut reader = Reader {
        text,
        at: 0,
        depth: 0,
    };
    let value = reader.value()?;
    reader.space();
    if reader.at != text.len() {
        return Err(reader.fault("more text behind the value"));
    }
    if value.kind() != minijinja::value::ValueKind::Map {
        return Err(reader.fault("the context is no object"));
    }
    Ok(value)
}

impl Reader<'_> {
    fn fault(&self, what: &str) -> Failure {
        Failure::new(CONTEXT, format!("context, byte {}: {what}", self.at))
    }

    fn peek(&self) -> u8 {
        *self.text.as_bytes().get(self.at).unwrap_or(&0)
    }

    fn space(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Failure> {
        self.space();
        if self.peek() != byte {
            return Err(self.fault(&format!("expected {:?}", byte as char)));
        }
        self.at += 1;
        Ok(())
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, Failure> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.fault("expected a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn value(&mut self) -> Result<Value, Failure> {
        self.space();
        match self.peek() {
            b'{' => self.nested(Self::object),
            b'[' => self.nested(Self::array),
            b'"' => Ok(Value::from(self.string()?)),
            b'#' => {
                self.at += 1;
                self.number(true)
            }
            b'-' | b'0'..=b'9' => self.number(false),
            b't' => self.word("true", Value::from(true)),
            b'f' => self.word("false", Value::from(false)),
            b'n' => self.word("null", Value::from(())),
            _ => Err(self.fault("expected a value")),
        }
    }

    fn nested(
        &mut self,
        read: fn(&mut Self) -> Result<Value, Failure>,
    ) -> Result<Value, Failure> {
        if self.depth == MAX_DEPTH {
            return Err(self.fault("nested too deeply"));
        }
        self.depth += 1;
        self.at += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// A comma or the closing byte; true when there is more.
    fn more(&mut self, close: u8) -> Result<bool, Failure> {
        self.space();
        let found = self.peek();
        if found != b',' && found != close {
            return Err(self.fault("expected a comma or the end"));
        }
        self.at += 1;
        Ok(found == b',')
    }

    fn object(&mut self) -> Result<Value, Failure> {
        let mut pairs: Vec<(Value, Value)> = Vec::new();
        self.space();
        if self.peek() == b'}' {
            self.at += 1;
            return Ok(Value::from_pairs(pairs));
        }
        loop {
            self.space();
            let key = Value::from(self.string()?);
            self.expect(b':')?;
            pairs.push((key, self.value()?));
            if !self.more(b'}')? {
                return Ok(Value::from_pairs(pairs));
            }
        }
    }

    fn array(&mut self) -> Result<Value, Failure> {
        let mut items: Vec<Value> = Vec::new();
        self.space();
        if self.peek() == b']' {
            self.at += 1;
            return Ok(Value::from(items));
        }
        loop {
            items.push(self.value()?);
            if !self.more(b']')? {
                return Ok(Value::from(items));
            }
        }
    }

    fn number(&mut self, verbatim: bool) -> Result<Value, Failure> {
        let start = self.at;
        while matches!(self.peek(), b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E') {
            self.at += 1;
        }
        let text = &self.text[start..self.at];
        if text.parse::<f64>().is_err() {
            return Err(self.fault("expected a number"));
        }
        Ok(number::parse(text, verbatim))
    }

    fn hex4(&mut self) -> Option<u32> {
        let digits = self.text.get(self.at..self.at + 4)?;
        let value = u32::from_str_radix(digits, 16).ok()?;
        self.at += 4;
        Some(value)
    }

    /// Behind `\u`; a surrogate without its partner becomes U+FFFD.
    fn unicode_escape(&mut self) -> Option<char> {
        let high = self.hex4()?;
        if (0xD800..0xDC00).contains(&high) && self.text[self.at..].starts_with("\\u") {
            let back = self.at;
            self.at += 2;
            let low = self.hex4()?;
            if (0xDC00..0xE000).contains(&low) {
                return char::from_u32(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00));
            }
            self.at = back;
        }
        Some(char::from_u32(high).unwrap_or('\u{FFFD}'))
    }

    fn string(&mut self) -> Result<String, Failure> {
        self.expect(b'"')?;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest
                .find(['"', '\\'])
                .ok_or_else(|| self.fault("a string without an end"))?;
            out.push_str(&rest[..plain]);
            self.at += plain + 1;
            if rest.as_bytes()[plain] == b'"' {
                return Ok(out);
            }
            let escape = self.peek();
            self.at += 1;
            let c = match escape {
                b'"' | b'\\' | b'/' => Some(escape as char),
                b'b' => Some('\u{8}'),
                b'f' => Some('\u{c}'),
                b'n' => Some('\n'),
                b'r' => Some('\r'),
                b't' => Some('\t'),
                b'u' => self.unicode_escape(),
                _ => None,
            };
            out.push(c.ok_or_else(|| self.fault("a wrong escape"))?);
        }
    }
}
