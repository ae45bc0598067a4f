//! The engine, set up to equal Jinja2 as transformers sets that up.

use crate::{context, filters, generation, methods, tests_py, tojson};
use crate::{Failure, FAILED, LIMIT, RAISED, SYNTAX};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Rest;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use std::cell::Cell;
use std::fmt;
use std::io;

const NAME: &str = "chat_template";
const RECURSION_LIMIT: usize = 200;

pub struct ChatTemplate {
    env: Environment<'static>,
}

/// Travels in an error's source, to be told from the engine's own faults.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// What `strftime_now` asks: set for the time of one render call, on its thread.
type Clock<'a> = &'a dyn Fn(&str) -> Option<String>;

thread_local! {
    static CLOCK: Cell<Option<*const (dyn Fn(&str) -> Option<String> + 'static)>> = const { Cell::new(None) };
}

struct ClockGuard;

impl ClockGuard {
    fn set(clock: Clock<'_>) -> ClockGuard {
        let clock: *const (dyn Fn(&str) -> Option<String> + '_) = clock;
        // SAFETY: only the lifetime changes; the pointer is cleared before the borrow ends, when the guard drops.
        let clock = unsafe {
            std::mem::transmute::<
                *const (dyn Fn(&str) -> Option<String> + '_),
                *const (dyn Fn(&str) -> Option<String> + 'static),
            >(clock)
        };
        CLOCK.set(Some(clock));
        ClockGuard
    }
}

impl Drop for ClockGuard {
    fn drop(&mut self) {
        CLOCK.set(None);
    }
}

fn strftime_now(format: &str) -> Result<String, Error> {
    let clock = CLOCK.get().ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "strftime_now: no clock"))?;
    // SAFETY: set by a guard that is alive while a template renders on this thread.
    let clock = unsafe { &*clock };
    clock(format).ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "strftime_now: the format is not supported"))
}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let message = message.to_string();
    Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
}

fn unsupported(name: &'static str) -> impl Fn(Rest<Value>) -> Result<Value, Error> {
    move |_| Err(Error::new(ErrorKind::InvalidOperation, format!("{name} is not supported")))
}

fn environment() -> Result<Environment<'static>, Failure> {
    let mut env = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .map_err(|e| Failure::new(SYNTAX, e.to_string()))?;
    env.set_syntax(syntax);
    env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_recursion_limit(RECURSION_LIMIT);
    env.set_unknown_method_callback(methods::call);
    env.add_filter("tojson", tojson::tojson);
    filters::add(&mut env);
    env.add_function("raise_exception", raise_exception);
    env.add_function("strftime_now", strftime_now);
    env.add_function("cycler", |items: Rest<Value>| minijinja_contrib::globals::cycler(items.0));
    env.add_function("joiner", minijinja_contrib::globals::joiner);
    env.add_function("lipsum", unsupported("lipsum"));
    tests_py::add(&mut env);
    Ok(env)
}

/// The message, and where in the template.
fn describe(error: &Error) -> String {
    let what = error.detail().map(str::to_string).unwrap_or_else(|| error.kind().to_string());
    match error.line() {
        Some(line) => format!("line {line}: {what}"),
        None => what,
    }
}

/// The innermost engine error, which knows best, and what raise_exception said if that was it.
fn examine(error: &Error) -> Failure {
    let mut best = error;
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        if let Some(raised) = inner.downcast_ref::<Raised>() {
            return Failure::new(RAISED, raised.0.clone());
        }
        if let Some(inner) = inner.downcast_ref::<Error>() {
            best = inner;
        }
        source = inner.source();
    }
    match best.kind() {
        ErrorKind::OutOfFuel => Failure::new(LIMIT, "the template takes too many steps for this input"),
        _ => Failure::new(FAILED, describe(best)),
    }
}

/// Refuses to grow above a limit.
struct Bounded {
    text: Vec<u8>,
    most: usize,
    full: bool,
}

impl io::Write for Bounded {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        if data.len() > self.most - self.text.len() {
            self.full = true;
            return Err(io::Error::other("too much output"));
        }
        self.text.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ChatTemplate {
    pub fn new(source: &str) -> Result<ChatTemplate, Failure> {
        let mut env = environment()?;
        env.add_template_owned(NAME, generation::rewrite(source))
            .map_err(|e| Failure::new(SYNTAX, describe(&e)))?;
        Ok(ChatTemplate { env })
    }

    pub fn render(&self, context: &str, fuel: u64, most: usize, clock: Clock<'_>) -> Result<String, Failure> {
        let context = context::parse(context)?;
        // Fuel belongs to the environment; a copy shares the compiled template.
        let mut env = self.env.clone();
        env.set_fuel(Some(fuel));
        let template = env.get_template(NAME).map_err(|e| Failure::new(SYNTAX, describe(&e)))?;
        let mut out = Bounded {
            text: Vec::new(),
            most,
            full: false,
        };
        let _clock = ClockGuard::set(clock);
        let result = template.render_captured_to(context, &mut out).map(|_| ());
        match result {
            Ok(()) => String::from_utf8(out.text).map_err(|_| Failure::new(FAILED, "the output is not UTF-8")),
            Err(_) if out.full => Err(Failure::new(LIMIT, format!("the template writes more than {most} bytes"))),
            Err(error) => Err(examine(&error)),
        }
    }
}
