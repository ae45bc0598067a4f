//! The C entry points of `constraint.h`: llguidance with its logging and token forcing left out.

use crate::deadline::{start, within};
use crate::{bytes, guarded, Failure, FAILED, LIMIT, SYNTAX};
use llguidance::api::{GrammarInit, StopReason, TopLevelGrammar};
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Logger, Matcher, ParserFactory};
use std::ffi::c_char;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

/// Processor time of one step of an answer, which others' steps may wait for; a common one takes a few milliseconds.
const STEP: Duration = Duration::from_secs(1);
/// Of the first, which nobody waits for.
const FIRST_STEP: Duration = Duration::from_secs(4);
const TOO_LONG: &str = "a step of the grammar takes too long";

pub struct Vocabulary {
    factory: ParserFactory,
    ends: Vec<u32>,
}

pub struct Running {
    matcher: Matcher,
    ends: Vec<u32>,
}

#[repr(C)]
pub struct VocabularySpec {
    n_ids: u32,
    bytes: *const *const c_char,
    sizes: *const usize,
    control: *const u8,
    ends: *const i32,
    n_ends: u32,
}

/// # Safety
/// The arrays hold what `constraint.h` says.
unsafe fn open_vocabulary(spec: &VocabularySpec) -> Result<Vocabulary, Failure> {
    let mut words = Vec::with_capacity(spec.n_ids as usize);
    for id in 0..spec.n_ids as usize {
        let text = bytes(*spec.bytes.add(id), *spec.sizes.add(id));
        let mut word = Vec::with_capacity(text.len() + 1);
        if *spec.control.add(id) != 0 {
            word.push(TokTrie::SPECIAL_TOKEN_MARKER);
        }
        word.extend_from_slice(text);
        words.push(word);
    }
    let ends: Vec<u32> = std::slice::from_raw_parts(spec.ends, spec.n_ends as usize)
        .iter()
        .filter_map(|&id| u32::try_from(id).ok().filter(|&id| id < spec.n_ids))
        .collect();
    let Some(&first) = ends.first() else {
        return Err(Failure::new(FAILED, "the vocabulary has no end token"));
    };
    let trie = TokTrie::from(&TokRxInfo::new(spec.n_ids, first), &words);
    let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let mut factory = ParserFactory::new(
        &env,
        InferenceCapabilities::default(),
        &SlicedBiasComputer::general_slices(),
    )
    .map_err(|e| Failure::new(FAILED, e.to_string()))?;
    factory.quiet();
    let limits = factory.limits_mut();
    limits.verbose_errors = false;
    limits.max_lexer_states = 100_000;
    Ok(Vocabulary { factory, ends })
}

fn open_matcher(
    vocabulary: &Vocabulary,
    grammar: &str,
    most_items: usize,
) -> Result<Running, Failure> {
    let mut limits = vocabulary.factory.limits().clone();
    limits.max_items_in_row = most_items;
    let parser = vocabulary.factory.create_parser_from_init_ext(
        GrammarInit::Serialized(TopLevelGrammar::from_lark(grammar.to_string())),
        Logger::new(0, 0),
        InferenceCapabilities::default(),
        limits,
    );
    let mut matcher = Matcher::new(parser).into_cancellable();
    if let Some(message) = matcher.get_error() {
        let code = match matcher.stop_reason() {
            StopReason::LexerTooComplex | StopReason::ParserTooComplex => LIMIT,
            _ => SYNTAX,
        };
        return Err(Failure::new(code, message));
    }
    // A grammar that allows nothing at all is a fault of the request, not of the answer.
    within(&mut matcher, FIRST_STEP, |m| m.compute_mask_or_eos())
        .ok_or_else(|| Failure::new(LIMIT, TOO_LONG))?
        .map_err(|e| Failure::new(SYNTAX, e.to_string()))?;
    Ok(Running {
        matcher,
        ends: vocabulary.ends.clone(),
    })
}

#[no_mangle]
pub extern "C" fn pgl_bridge_watch() -> i32 {
    catch_unwind(start).map_or(0, i32::from)
}

/// # Safety
/// See `constraint.h`.
#[no_mangle]
pub unsafe extern "C" fn pgl_bridge_vocabulary_open(
    spec: *const VocabularySpec,
    out: *mut *mut Vocabulary,
    error: *mut c_char,
    room: usize,
) -> i32 {
    *out = ptr::null_mut();
    guarded(error, room, || {
        *out = Box::into_raw(Box::new(open_vocabulary(&*spec)?));
        Ok(())
    })
}

/// # Safety
/// See `constraint.h`.
#[no_mangle]
pub unsafe extern "C" fn pgl_bridge_vocabulary_close(vocabulary: *mut Vocabulary) {
    if !vocabulary.is_null() {
        let vocabulary = Box::from_raw(vocabulary);
        let _ = catch_unwind(AssertUnwindSafe(move || drop(vocabulary)));
    }
}

/// # Safety
/// See `constraint.h`.
#[no_mangle]
pub unsafe extern "C" fn pgl_bridge_matcher_compile(
    vocabulary: *const Vocabulary,
    grammar: *const c_char,
    size: usize,
    most_items: usize,
    out: *mut *mut Running,
    error: *mut c_char,
    room: usize,
) -> i32 {
    *out = ptr::null_mut();
    let grammar = bytes(grammar, size);
    guarded(error, room, || {
        let grammar = std::str::from_utf8(grammar)
            .map_err(|_| Failure::new(SYNTAX, "the grammar is not UTF-8"))?;
        *out = Box::into_raw(Box::new(open_matcher(&*vocabulary, grammar, most_items)?));
        Ok(())
    })
}

/// # Safety
/// See `constraint.h`.
#[no_mangle]
pub unsafe extern "C" fn pgl_bridge_matcher_close(matcher: *mut Running) {
    if !matcher.is_null() {
        let matcher = Box::from_raw(matcher);
        let _ = catch_unwind(AssertUnwindSafe(move || drop(matcher)));
    }
}

/// # Safety
/// See `constraint.h`.
#[no_mangle]
pub unsafe extern "C" fn pgl_bridge_matcher_again(
    matcher: *const Running,
    out: *mut *mut Running,
    error: *mut c_char,
    room: usize,
) -> i32 {
    *out = ptr::null_mut();
    let running = &*matcher;
    guarded(error, room, || {
        *out = Box::into_raw(Box::new(Running {
            matcher: running.matcher.deep_clone(),
            ends: running.ends.clone(),
        }));
        Ok(())
    })
}

/// # Safety
/// See `constraint.h`.
#[no_mangle]
pub unsafe extern "C" fn pgl_bridge_matcher_mask(
    matcher: *mut Running,
    mask: *mut u32,
    n_words: usize,
    error: *mut c_char,
    room: usize,
) -> i32 {
    let running = &mut *matcher;
    let mask = std::slice::from_raw_parts_mut(mask, n_words);
    guarded(error, room, || {
        let allowed = within(&mut running.matcher, STEP, |m| m.compute_mask_or_eos())
            .ok_or_else(|| Failure::new(FAILED, TOO_LONG))?
            .map_err(|e| Failure::new(FAILED, e.to_string()))?;
        let words = allowed.as_slice();
        let n = n_words.min(words.len());
        mask[..n].copy_from_slice(&words[..n]);
        mask[n..].fill(0);
        // Every end id ends an answer, not only the one that the grammar library knows.
        let first = running.ends[0] as usize;
        if mask[first / 32] >> (first % 32) & 1 != 0 {
            for &id in &running.ends {
                mask[id as usize / 32] |= 1 << (id % 32);
            }
        }
        Ok(())
    })
}

/// # Safety
/// See `constraint.h`.
#[no_mangle]
pub unsafe extern "C" fn pgl_bridge_matcher_accept(
    matcher: *mut Running,
    token: i32,
    error: *mut c_char,
    room: usize,
) -> i32 {
    let running = &mut *matcher;
    guarded(error, room, || {
        let id = u32::try_from(token).map_err(|_| Failure::new(FAILED, "a token below 0"))?;
        if running.ends.contains(&id) {
            return Ok(());
        }
        within(&mut running.matcher, STEP, |m| m.consume_token(id))
            .ok_or_else(|| Failure::new(FAILED, TOO_LONG))?
            .map_err(|e| Failure::new(FAILED, e.to_string()))
    })
}

/// # Safety
/// See `constraint.h`.
#[no_mangle]
pub unsafe extern "C" fn pgl_bridge_matcher_accepting(matcher: *mut Running) -> i32 {
    let running = &mut *matcher;
    catch_unwind(AssertUnwindSafe(|| {
        !running.matcher.is_error()
            && (running.matcher.is_stopped() || running.matcher.is_accepting().unwrap_or(false))
    }))
    .map_or(0, i32::from)
}
