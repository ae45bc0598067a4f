//! Tests (`is ..`) that ask Python about types. A string is a sequence and iterable there, a bool a number.

use crate::number::NumberText;
use minijinja::value::ValueKind;
use minijinja::{Environment, Value};

fn text_number(value: &Value) -> Option<bool> {
    value.downcast_object_ref::<NumberText>().map(NumberText::is_integer)
}

fn is_number(value: &Value) -> bool {
    value.is_number() || value.kind() == ValueKind::Bool || text_number(value).is_some()
}

fn is_integer(value: &Value) -> bool {
    value.is_integer() || text_number(value) == Some(true)
}

fn is_float(value: &Value) -> bool {
    (value.is_number() && !value.is_integer()) || text_number(value) == Some(false)
}

fn is_iterable(value: &Value) -> bool {
    text_number(value).is_none()
        && matches!(
            value.kind(),
            ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Iterable | ValueKind::Undefined
        )
}

fn is_sequence(value: &Value) -> bool {
    text_number(value).is_none()
        && matches!(
            value.kind(),
            ValueKind::String | ValueKind::Seq | ValueKind::Map | ValueKind::Undefined
        )
}

fn is_callable(value: &Value) -> bool {
    value.kind() == ValueKind::Plain && text_number(value).is_none()
}

pub fn add(env: &mut Environment<'static>) {
    env.add_test("number", is_number);
    env.add_test("integer", is_integer);
    env.add_test("float", is_float);
    env.add_test("iterable", is_iterable);
    env.add_test("sequence", is_sequence);
    env.add_test("callable", is_callable);
}
