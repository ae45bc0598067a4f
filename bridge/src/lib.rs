//! The C entry points of `bridge.h`. Each catches panics, so that a fault in here is an error over there.

mod constraint;
mod context;
mod deadline;
mod digits;
mod filters;
mod generation;
mod methods;
mod number;
mod template;
mod tests_py;
mod tojson;

use std::ffi::c_char;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;

pub const OK: i32 = 0;
pub const SYNTAX: i32 = 1;
pub const RAISED: i32 = 2;
pub const FAILED: i32 = 3;
pub const LIMIT: i32 = 4;
pub const CONTEXT: i32 = 5;
pub const PANIC: i32 = 6;

/// What went wrong: a code of `bridge.h` and a message.
pub struct Failure {
    pub code: i32,
    pub message: String,
}

impl Failure {
    pub fn new(code: i32, message: impl Into<String>) -> Failure {
        Failure {
            code,
            message: message.into(),
        }
    }
}

#[repr(C)]
pub struct Text {
    data: *mut c_char,
    size: usize,
    capacity: usize,
}

type Clock = extern "C" fn(*mut std::ffi::c_void, *const c_char, usize, *mut c_char, usize) -> usize;

#[repr(C)]
pub struct Render {
    context: *const c_char,
    context_size: usize,
    fuel: u64,
    max_output_bytes: usize,
    strftime_now: Option<Clock>,
    user: *mut std::ffi::c_void,
}

/// The bytes at `data`; empty for a null pointer.
///
/// # Safety
/// `data` points to `size` readable bytes that nobody changes meanwhile.
unsafe fn bytes<'a>(data: *const c_char, size: usize) -> &'a [u8] {
    if data.is_null() || size == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data.cast::<u8>(), size)
    }
}

/// Copies the message, cut at a character, with a zero behind it.
///
/// # Safety
/// `error` is null or points to `room` writable bytes.
unsafe fn put_error(message: &str, error: *mut c_char, room: usize) {
    if error.is_null() || room == 0 {
        return;
    }
    let mut n = message.len().min(room - 1);
    while !message.is_char_boundary(n) {
        n -= 1;
    }
    ptr::copy_nonoverlapping(message.as_ptr(), error.cast::<u8>(), n);
    *error.add(n) = 0;
}

/// Runs `work`, and turns a failure or a panic into a code and a message.
///
/// # Safety
/// As `put_error`.
unsafe fn guarded(
    error: *mut c_char,
    room: usize,
    work: impl FnOnce() -> Result<(), Failure>,
) -> i32 {
    let failure = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return OK,
        Ok(Err(failure)) => failure,
        Err(payload) => {
            let what = payload
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| payload.downcast_ref::<&str>().copied())
                .unwrap_or("unknown");
            Failure::new(PANIC, format!("fault in the template library: {what}"))
        }
    };
    put_error(&failure.message, error, room);
    failure.code
}

/// # Safety
/// See `bridge.h`.
#[no_mangle]
pub unsafe extern "C" fn pgl_bridge_text_free(text: *mut Text) {
    if let Some(text) = text.as_mut() {
        if !text.data.is_null() {
            drop(Vec::from_raw_parts(
                text.data.cast::<u8>(),
                text.size,
                text.capacity,
            ));
        }
        *text = Text {
            data: ptr::null_mut(),
            size: 0,
            capacity: 0,
        };
    }
}

/// # Safety
/// See `bridge.h`.
#[no_mangle]
pub unsafe extern "C" fn pgl_bridge_template_open(
    source: *const c_char,
    size: usize,
    out: *mut *mut template::ChatTemplate,
    error: *mut c_char,
    room: usize,
) -> i32 {
    *out = ptr::null_mut();
    let source = bytes(source, size);
    guarded(error, room, || {
        let source = std::str::from_utf8(source)
            .map_err(|_| Failure::new(SYNTAX, "the template is not UTF-8"))?;
        *out = Box::into_raw(Box::new(template::ChatTemplate::new(source)?));
        Ok(())
    })
}

/// # Safety
/// See `bridge.h`.
#[no_mangle]
pub unsafe extern "C" fn pgl_bridge_template_close(t: *mut template::ChatTemplate) {
    if !t.is_null() {
        let t = Box::from_raw(t);
        // A panic while dropping has nowhere to go.
        let _ = catch_unwind(AssertUnwindSafe(move || drop(t)));
    }
}

/// # Safety
/// See `bridge.h`.
#[no_mangle]
pub unsafe extern "C" fn pgl_bridge_template_render(
    t: *const template::ChatTemplate,
    render: *const Render,
    out: *mut Text,
    error: *mut c_char,
    room: usize,
) -> i32 {
    *out = Text {
        data: ptr::null_mut(),
        size: 0,
        capacity: 0,
    };
    let (t, render) = (&*t, &*render);
    let context = bytes(render.context, render.context_size);
    guarded(error, room, || {
        let context = std::str::from_utf8(context)
            .map_err(|_| Failure::new(CONTEXT, "the context is not UTF-8"))?;
        let clock = |format: &str| -> Option<String> {
            let call = render.strftime_now?;
            let mut text = vec![0u8; 1024];
            let n = call(
                render.user,
                format.as_ptr().cast(),
                format.len(),
                text.as_mut_ptr().cast(),
                text.len(),
            );
            text.truncate(n.min(1024));
            String::from_utf8(text).ok()
        };
        let text = t.render(context, render.fuel, render.max_output_bytes, &clock)?;
        let mut text = std::mem::ManuallyDrop::new(text.into_bytes());
        *out = Text {
            data: text.as_mut_ptr().cast(),
            size: text.len(),
            capacity: text.capacity(),
        };
        Ok(())
    })
}
