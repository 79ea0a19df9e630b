//! A wait for a time of the clock.

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::Sleep;

use crate::activity::Work;
use crate::clock::Clock;
use crate::timers::Place;

/// A wait for a time of a [`Clock`]; its timer is listed as pending until the wait ends or is
/// dropped. Its output is the work that is due then: it is under way until that is dropped.
#[must_use = "futures do nothing unless polled"]
pub struct Wait {
    clock: Clock,
    place: Option<Place>,
    /// The timer of the machine's time; None for a clock that is advanced.
    sleep: Option<Pin<Box<Sleep>>>,
    /// The work that has begun before the wait ends: that which it is a part of.
    begun: Option<Work>,
}

impl Wait {
    pub(crate) fn new(clock: Clock, place: Option<Place>, sleep: Option<Sleep>, begun: Option<Work>) -> Wait {
        Wait { clock, place, sleep: sleep.map(Box::pin), begun }
    }

    /// Lists the timer with a key, such as the `namespace/name` of the object that it is about.
    pub fn of(self, key: impl Into<Cow<'static, str>>) -> Wait {
        if let Some(place) = self.place {
            self.clock.timers().name(place, key.into());
        }
        self
    }

    fn end(&mut self) {
        if let Some(place) = self.place.take() {
            self.clock.timers().remove(place);
        }
    }
}

impl Future for Wait {
    type Output = Work;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Work> {
        let wait = self.get_mut();
        let fired = match (&mut wait.sleep, wait.place) {
            (Some(sleep), _) => {
                ready!(sleep.as_mut().poll(context));
                None
            }
            (None, Some(place)) => ready!(wait.clock.timers().wake(place, context.waker())),
            (None, None) => None,
        };
        let work = fired.or_else(|| wait.begun.take());
        let work = work.unwrap_or_else(|| wait.clock.activity().begin());
        wait.end();
        Poll::Ready(work)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").field("due", &self.place.map(|(due, _)| due)).finish_non_exhaustive()
    }
}
