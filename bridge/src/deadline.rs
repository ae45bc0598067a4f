//! Bounds the time of one step of a grammar: what takes longer is cancelled, and its answer ends with an error. A hostile
//! grammar can make a step as long as it likes within all other limits. Time is that of the thread's processor, so that a
//! busy machine does not end what is only waiting.

use llguidance::{CancellationHandle, Matcher};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How exactly deadlines are kept.
const TICK: Duration = Duration::from_millis(50);
/// Ticks without work after which the thread sleeps until there is some.
const IDLE_TICKS: u32 = 40;

/// And in any case after so many times the limit by the clock on the wall.
const PATIENCE: u32 = 20;

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

extern "C" {
    fn pthread_self() -> usize;
    fn pthread_getcpuclockid(thread: usize, clock: *mut i32) -> i32;
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

/// The processor time of a thread that is alive.
fn processor_time(clock: i32) -> Option<Duration> {
    let mut time = Timespec {
        seconds: 0,
        nanoseconds: 0,
    };
    // SAFETY: `time` has the layout of a 64-bit Linux timespec.
    let status = unsafe { clock_gettime(clock, &mut time) };
    (status == 0).then(|| Duration::new(time.seconds as u64, time.nanoseconds as u32))
}

struct Entry {
    id: u64,
    clock: i32, // of the thread that works; it takes the entry out before it ends
    until: Duration,
    until_at_most: Instant,
    handle: CancellationHandle,
}

impl Entry {
    fn is_over(&self) -> bool {
        self.until_at_most <= Instant::now()
            || processor_time(self.clock).is_some_and(|now| now >= self.until)
    }
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

/// One thread for the whole process.
fn watch() {
    let mut state = lock();
    let mut idle = 0;
    loop {
        for entry in state.entries.iter().filter(|e| e.is_over()) {
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

/// Starts the thread; false: it cannot be started.
pub fn start() -> bool {
    let mut state = lock();
    if !state.started {
        state.started = thread::Builder::new()
            .name("pgl-deadlines".to_string())
            .stack_size(128 << 10)
            .spawn(watch)
            .is_ok();
    }
    state.started
}

fn begin(handle: CancellationHandle, limit: Duration) -> Option<u64> {
    let mut clock = 0;
    // SAFETY: the calling thread asks for its own clock.
    if unsafe { pthread_getcpuclockid(pthread_self(), &mut clock) } != 0 {
        return None;
    }
    let until = processor_time(clock)? + limit;
    if !start() {
        return None;
    }
    let mut state = lock();
    let id = state.next_id;
    state.next_id += 1;
    state.entries.push(Entry {
        id,
        clock,
        until,
        until_at_most: Instant::now() + limit * PATIENCE,
        handle,
    });
    if state.asleep {
        WORK.notify_one();
    }
    Some(id)
}

/// Takes the entry out again, also when the work panics.
struct Watched(u64);

impl Drop for Watched {
    fn drop(&mut self) {
        lock().entries.retain(|e| e.id != self.0);
    }
}

/// Runs `work` on a cancellable matcher for at most about `limit`; None: nothing can watch it, or it took longer.
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
