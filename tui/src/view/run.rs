//! The event loop: keys, snapshots and signals in, frames out. Nothing is drawn when nothing has changed.

use std::future::poll_fn;
use std::process::ExitStatus;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use color_eyre::eyre::{Result, bail};
use crossterm::event::{Event, EventStream};
use futures_util::StreamExt;
use nix::sys::signal::{Signal as Kill, kill};
use nix::unistd::Pid;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{Baseline, Theme, ViewState, render, render_svg, render_text, shows_age};
use crate::app::{Answer, Ask, Handle, Request};
use crate::config::{Config, Remembered};
use crate::input::{Action, Ground, Key, Outcome, QUESTION, Told, answered, mouse, paste, press};
use crate::model::snapshot::{Link, Snapshot};
use crate::terminal::{self, Guard, Screen};

/// Frames are at least this far apart.
const FRAME: Duration = Duration::from_millis(33);
/// Ages on the screen are brought up to date this often.
const TICK: Duration = Duration::from_secs(1);

/// A source tells something once a second at least; one that has not for so long is stuck.
const STALE: Duration = Duration::from_secs(3);
/// A question that comes by itself comes when no key has for so long.
const CALM: Duration = Duration::from_secs(1);
/// How long what was to be known first is shown.
const FIRST: Duration = Duration::from_secs(10);
/// How long to wait to hear of a signal that has come.
const HEARD: Duration = Duration::from_secs(1);

/// How the screen is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What the person has written down.
    pub config: Config,
    /// What is remembered of earlier runs.
    pub remembered: Remembered,
    /// The theme, if it was asked for on the command line.
    pub theme: Option<Theme>,
    /// The recording to compare kernels with, if one is.
    pub compare: Option<Baseline>,
    /// Whether toggles, marks and signals are refused, whatever is written down.
    pub read_only: bool,
    /// The command gtop started itself, if so: leaving asks what becomes of it.
    pub launched: Option<String>,
    /// What became of that command, once something has: there is nothing left to ask then.
    pub exited: Option<watch::Receiver<Option<ExitStatus>>>,
    /// What the person should know first.
    pub note: Option<String>,
}

/// How the screen ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The person left.
    Quit {
        /// Whether the launched command is to be stopped.
        stop: bool,
    },
    /// This signal came.
    Signal(i32),
    /// The terminal is gone.
    NoTerminal,
}

/// The signals that mean something to the screen.
pub(super) struct Signals {
    pub(super) end: Ending,
    pub(super) suspend: Signal,
    pub(super) go_on: Signal,
}

/// The signals that end it.
pub(super) struct Ending([(SignalKind, Signal); 4]);

impl Signals {
    pub(super) fn new() -> Result<Self> {
        let of = |kind: SignalKind| signal(kind).map(|signal| (kind, signal));
        Ok(Self {
            end: Ending([
                of(SignalKind::terminate())?,
                of(SignalKind::hangup())?,
                of(SignalKind::interrupt())?,
                of(SignalKind::quit())?,
            ]),
            suspend: signal(SignalKind::from_raw(nix::libc::SIGTSTP))?,
            go_on: signal(SignalKind::from_raw(nix::libc::SIGCONT))?,
        })
    }

    /// Gives the terminal to the shell, stops, and takes the terminal again.
    pub(super) async fn stop(&mut self, guard: &mut Guard) -> Result<()> {
        guard.suspend()?;
        // What ended the stop is heard, too, and means nothing more.
        let _ = timeout(HEARD, self.go_on.recv()).await;
        Ok(())
    }
}

impl Ending {
    /// Waits for one of them.
    pub(super) async fn recv(&mut self) -> i32 {
        let [(a, on_a), (b, on_b), (c, on_c), (d, on_d)] = &mut self.0;
        let kind = tokio::select! {
            _ = on_a.recv() => a,
            _ = on_b.recv() => b,
            _ = on_c.recv() => c,
            _ = on_d.recv() => d,
        };
        kind.as_raw_value()
    }
}

/// When to draw: not too often, and not at all when nothing has changed.
struct Pace {
    /// When the last frame began.
    last: Option<Instant>,
    /// How long to wait after it at least, because it was costly to draw: an hour on one screen, for example.
    rest: Duration,
    /// When the next one is due, if something has changed.
    due: Option<Instant>,
}

impl Pace {
    fn new(now: Instant) -> Self {
        Self { last: None, rest: Duration::ZERO, due: Some(now) }
    }

    /// Something has changed and is to be seen.
    fn wants(&mut self) {
        let at = self.last.map_or_else(Instant::now, |last| last + FRAME.max(self.rest));
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }

    const fn has_changed(&self) -> bool {
        self.due.is_some()
    }

    fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// A frame begun at `started` is on the screen.
    fn drawn(&mut self, started: Instant, now: Instant) {
        *self = Self { last: Some(started), rest: (now - started) * 4, due: None };
    }

    /// Waits until the next frame is due; for ever when nothing has changed.
    async fn due(&self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
    }
}

/// An answer of a shim, with what was asked.
type Answered = (u32, Ask, Answer);

/// Shows snapshots until the person leaves or a signal comes. The terminal is restored when this returns.
pub async fn run(mut handle: Handle, options: Options) -> Result<End> {
    let mut signals = Signals::new()?;
    let mut guard = Guard::take(options.config.mouse)?;
    let mut screen = Screen::default();
    let mut events = EventStream::new();
    let (answer_tx, mut answers) = mpsc::channel::<Answered>(16);
    let mut state = ViewState::new(&options.config, options.theme);
    state.read_only |= options.read_only;
    state.launched = options.launched;
    state.moments.extend(options.compare.clone());
    state.baseline = options.compare;
    state.filters.clone_from(&options.remembered.filters);
    if options.remembered.first_run {
        let key = |action| state.keymap.key_of(action).unwrap_or_default();
        let (help, filter, quit) = (key(Action::Help), key(Action::Filter), key(Action::Quit));
        state.note = Some(format!(
            "New here? {help} lists all keys, {filter} filters, arrows and mouse move about, {quit} leaves"
        ));
    }
    state.note = options.note.or(state.note);
    let mut ground = Ground::default();
    let guessed = options.theme.is_none() && options.config.theme.is_none() && state.theme.is_guess();
    if guessed && screen.ask(QUESTION).is_err() {
        return Ok(End::NoTerminal);
    }
    let mut snapshot = handle.snapshots.borrow_and_update().clone();
    let mut source_alive = true;
    // When the newest snapshot came, if another is bound to come.
    let mut came: Option<Instant> = None;
    let mut pace = Pace::new(Instant::now());
    // When a key came last, and what was to be known first as long as that is news.
    let mut typed: Option<Instant> = None;
    let first = state.note.clone();
    let mut fades = first.is_some().then(|| Instant::now() + FIRST);
    loop {
        if terminal::panicked() {
            bail!("a part of gtop has panicked; its message is above");
        }
        let started = Instant::now();
        // Nothing is taken in while the picture stands still.
        came = came.filter(|_| !state.frozen);
        state.stalled = came.map(|came| started - came).filter(|since| *since >= STALE);
        if pace.is_due(started) {
            if draw(&mut screen, &snapshot, &mut state).is_err() {
                return Ok(End::NoTerminal);
            }
            pace.drawn(started, Instant::now());
        }
        let ages = shows_age(&snapshot, &state);
        let stale_at = came.filter(|_| !ages).map(|came| came + STALE);
        tokio::select! {
            biased;
            () = terminal::panic() => {}
            signal = signals.end.recv() => return Ok(End::Signal(signal)),
            event = events.next() => {
                // All that was typed is handled before the next frame.
                typed = Some(started);
                let mut next = Some(event);
                let mut changed = false;
                while let Some(event) = next {
                    let Some(Ok(event)) = event else { return Ok(End::NoTerminal) };
                    if options.exited.as_ref().is_some_and(|exited| exited.borrow().is_some()) {
                        state.launched = None;
                    }
                    for outcome in on_event(&event, &mut ground, &mut state, &snapshot) {
                        changed |= outcome != Outcome::Nothing;
                        match outcome {
                            Outcome::Draw | Outcome::Nothing => {}
                            Outcome::Quit { stop } => {
                                options.remembered.save(&state.filters);
                                return Ok(End::Quit { stop });
                            }
                            Outcome::Copy(text) => screen.copy(&text)?,
                            Outcome::Screenshot => state.note = Some(write_screen(&snapshot, &mut state)),
                            Outcome::Dot => state.note = Some(write_dot(&snapshot, &state)),
                            Outcome::Suspend => {
                                signals.stop(&mut guard).await?;
                                screen.forget();
                            }
                            Outcome::Redraw => screen.forget(),
                            Outcome::Ask { pid, ask, yes } => {
                                request(&handle, &answer_tx, pid, ask, yes, &mut state);
                            }
                            Outcome::Signal { pid, number } => {
                                let began = snapshot.start_time_of(pid);
                                state.note = Some(signal_process(pid, began, number));
                            }
                        }
                    }
                    next = waiting(&mut events).await;
                }
                if changed {
                    pace.wants();
                }
            }
            _ = signals.suspend.recv() => {
                signals.stop(&mut guard).await?;
                screen.forget();
                pace.wants();
            }
            _ = signals.go_on.recv() => {
                guard.retake()?;
                screen.forget();
                pace.wants();
            }
            Some((pid, ask, answer)) = answers.recv() => {
                answered(pid, ask, &answer, &mut state);
                pace.wants();
            }
            changed = handle.snapshots.changed(), if source_alive && !state.frozen => {
                source_alive = changed.is_ok();
                snapshot = handle.snapshots.borrow_and_update().clone();
                state.take_moments(&snapshot);
                state.take_newcomers(&snapshot);
                state.take_question(&snapshot, typed.is_none_or(|typed| started - typed >= CALM));
                let goes_on = source_alive && snapshot.replay.is_none() && snapshot.source.link == Link::Up;
                came = goes_on.then(Instant::now);
                pace.wants();
            }
            () = sleep_until(stale_at.unwrap_or(started)), if stale_at.is_some() => pace.wants(),
            () = sleep_until(fades.unwrap_or(started)), if fades.is_some() => {
                fades = None;
                state.note.take_if(|note| Some(&*note) == first.as_ref());
                pace.wants();
            }
            () = pace.due() => {}
            () = sleep(TICK), if ages && !pace.has_changed() => pace.wants(),
        }
    }
}

/// The next event if one is waiting already. It is polled on behalf of this task and not with a waker of nobody,
/// which the stream would wake when the next key comes.
async fn waiting(events: &mut EventStream) -> Option<Option<std::io::Result<Event>>> {
    poll_fn(|cx| match events.poll_next_unpin(cx) {
        Poll::Ready(event) => Poll::Ready(Some(event)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Handles an event; keys among which the terminal may have told of its ground can be several at once.
fn on_event(
    event: &Event,
    ground: &mut Ground,
    state: &mut ViewState,
    snapshot: &Arc<Snapshot>,
) -> Vec<Outcome> {
    let told = match event {
        Event::Key(key) => Key::from_event(*key).map_or(Told::Nothing, |key| ground.take(key)),
        _ => Told::Keys(ground.give_up()),
    };
    let mut outcomes = match told {
        Told::Nothing => Vec::new(),
        Told::Keys(keys) => keys.into_iter().map(|key| press(key, state, snapshot)).collect(),
        Told::Light(light) => {
            state.theme = state.theme.on(light);
            vec![Outcome::Draw]
        }
    };
    match event {
        Event::Key(_) | Event::FocusGained | Event::FocusLost => {}
        // Pasted text is no series of commands.
        Event::Paste(text) => outcomes.push(paste(text, state)),
        Event::Resize(..) => outcomes.push(Outcome::Draw),
        Event::Mouse(event) => outcomes.push(mouse(*event, state, snapshot)),
    }
    outcomes
}

/// Draws one frame; it fails when the terminal is gone.
fn draw(screen: &mut Screen, snapshot: &Snapshot, state: &mut ViewState) -> std::io::Result<()> {
    let size = Screen::size();
    if size.width == 0 || size.height == 0 {
        screen.forget();
        return Ok(());
    }
    // Ages in a recording are those of its moment.
    state.now = if snapshot.replay.is_some() { snapshot.time } else { now() };
    let (buffer, seen) = render(snapshot, state, size);
    state.seen = seen;
    screen.show(buffer)
}

/// Asks the shim of a process; its answer comes back through `answers`.
fn request(
    handle: &Handle,
    answers: &mpsc::Sender<Answered>,
    pid: u32,
    ask: Ask,
    yes: bool,
    state: &mut ViewState,
) {
    let (answer, answered) = oneshot::channel();
    if handle.requests.try_send(Request { pid, ask: ask.clone(), yes, answer }).is_err() {
        state.note = Some("not asked: earlier requests have no answer yet".to_owned());
        return;
    }
    let answers = answers.clone();
    tokio::spawn(async move {
        if let Ok(answer) = answered.await {
            let _ = answers.send((pid, ask, answer)).await;
        }
    });
}

/// Writes the screen as it is into files of the present folder; what came of it, in words.
fn write_screen(snapshot: &Snapshot, state: &mut ViewState) -> String {
    let moment = jiff::Timestamp::now().to_zoned_datetime(state.zone.clone()).strftime("%Y%m%d-%H%M%S");
    let size = Screen::size();
    state.note = None;
    let write = |ending: &str, text: String| {
        let name = format!("gtop-{moment}.{ending}");
        std::fs::write(&name, text).map(|()| name)
    };
    let svg = write("svg", render_svg(snapshot, state, size));
    match svg.and_then(|svg| Ok((svg, write("txt", render_text(snapshot, state, size))?))) {
        Ok((svg, txt)) => format!("wrote {svg} and {txt}"),
        Err(error) => format!("the screen was not written: {error}"),
    }
}

/// Writes the chosen executable graph into a file of this directory; what came of it, in words.
fn write_dot(snapshot: &Snapshot, state: &ViewState) -> String {
    let process = state.process(snapshot);
    let Some(row) = process.and_then(|process| super::graphs::chosen(process, state)) else {
        return "no graph is chosen".to_owned();
    };
    let name = format!("gtop-graph-{}.dot", row.id);
    let mut text = Vec::new();
    let written = crate::export::dot::write(row, &mut text).and_then(|()| std::fs::write(&name, text));
    match written {
        Ok(()) => format!("wrote {name}; dot -Tsvg {name} draws it"),
        Err(error) => format!("{name} was not written: {error}"),
    }
}

/// Sends a process a signal, unless another one has taken its place since; what came of it, in words.
fn signal_process(pid: u32, began: Option<u64>, number: i32) -> String {
    let Ok(signal) = Kill::try_from(number) else { return format!("{number} is no signal") };
    let Ok(id) = i32::try_from(pid) else { return format!("there is no process {pid}") };
    let now = procfs::process::Process::new(id).and_then(|process| process.stat()).map(|stat| stat.starttime);
    if let (Some(began), Ok(now)) = (began.filter(|began| *began != 0), now)
        && began != now
    {
        return format!("not sent: process {pid} is another one by now");
    }
    match kill(Pid::from_raw(id), signal) {
        Ok(()) => format!("sent {signal} to process {pid}"),
        Err(error) => format!("{signal} was not sent to process {pid}: {}", error.desc()),
    }
}

/// The present, `CLOCK_REALTIME` nanoseconds.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_keep_their_distance_and_nothing_is_never_due() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        assert!(pace.is_due(start));
        pace.drawn(start, start);
        assert!(!pace.has_changed() && !pace.is_due(start + TICK));
        pace.wants();
        pace.wants();
        assert_eq!(pace.due, Some(start + FRAME));
    }

    #[test]
    fn a_costly_frame_is_followed_by_a_rest() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        pace.drawn(start, start + Duration::from_millis(30));
        pace.wants();
        assert_eq!(pace.due, Some(start + Duration::from_millis(120)));
    }
}
