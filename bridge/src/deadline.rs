//! Bounds the time of one step of a grammar: what takes longer is cancelled, and its answer ends with an error. A hostile
//! grammar can make a step as long as it likes within all other limits.

use llguidance::{CancellationHandle, Matcher};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How exactly deadlines are kept.
const TICK: Duration = Duration::from_millis(50);
/// Ticks without work after which the thread sleeps until there is some.
const IDLE_TICKS: u32 = 40;

struct Entry {
    id: u64,
    until: Instant,
    handle: CancellationHandle,
}

struct State {
    entries: Vec<Entry>,
    next_id: u64,
    started: bool,
    asleep: bool,
}

static STATE: Mutex<State> = Mutex::new(State {
    entries: Vec::new(),
    next_id: 0,
    started: false,
    asleep: false,
});
static WORK: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One thread for the whole process, from the first grammar on.
fn watch() {
    let mut state = lock();
    let mut idle = 0;
    loop {
        let now = Instant::now();
        for entry in state.entries.iter().filter(|e| e.until <= now) {
            entry.handle.cancel();
        }
        idle = if state.entries.is_empty() {
            idle + 1
        } else {
            0
        };
        if idle > IDLE_TICKS {
            state.asleep = true;
            while state.entries.is_empty() {
                state = WORK.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.asleep = false;
            idle = 0;
        }
        state = WORK
            .wait_timeout(state, TICK)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
    }
}

fn begin(handle: CancellationHandle, limit: Duration) -> Option<u64> {
    let mut state = lock();
    if !state.started {
        state.started = thread::Builder::new()
            .name("pgl-deadlines".to_string())
            .stack_size(128 << 10)
            .spawn(watch)
            .is_ok();
    }
    let id = state.next_id;
    state.next_id += 1;
    state.entries.push(Entry {
        id,
        until: Instant::now() + limit,
        handle,
    });
    if state.asleep {
        WORK.notify_one();
    }
    state.started.then_some(id)
}

/// Takes the entry out again, also when the work panics.
struct Watched(u64);

impl Drop for Watched {
    fn drop(&mut self) {
        lock().entries.retain(|e| e.id != self.0);
    }
}

/// Runs `work` on a cancellable matcher for at most about `limit`; None: there is no thread to watch it, or it took longer.
pub fn within<T>(
    matcher: &mut Matcher,
    limit: Duration,
    work: impl FnOnce(&mut Matcher) -> T,
) -> Option<T> {
    let handle = matcher.cancellation_handle()?;
    let result = {
        let _watched = Watched(begin(handle, limit)?);
        work(matcher)
    };
    (!matcher.is_cancelled()).then_some(result)
}
