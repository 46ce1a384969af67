//! The engine behind the screen of a replay: plays a recording as time goes by, and does what the keys ask for.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use gtop_protocol::message::Outcome;
use tokio::time::{MissedTickBehavior, interval};

use crate::app::{self, Answer, Ask, Engine, Handle, PUBLISH_EVERY};
use crate::model::snapshot::{Link, Replay};
use crate::source::recording::When;
use crate::source::replay::{Find, Player};
use crate::view::units;

/// How often to look whether a recording that is still being made has grown.
const FOLLOW: Duration = Duration::from_millis(500);
/// The speeds there are.
pub const SPEEDS: [f64; 10] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
/// How long playing may take of each picture's time, so that keys are answered whatever the speed.
const WORK: Duration = Duration::from_millis(100);
/// How long filling in what led to a moment may take at a time, for the same reason.
const FILL: Duration = Duration::from_millis(10);

/// What is asked of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Play, or stand still.
    PlayPause,
    /// Play faster, or slower.
    Speed {
        /// Whether faster.
        faster: bool,
    },
    /// The next moment at which records came, or the one before.
    Step {
        /// Whether the next one.
        ahead: bool,
    },
    /// Go to a time.
    Jump(When),
    /// Go to something.
    Find(Find),
}

/// Starts the engine, standing still or playing.
pub fn start(mut player: Player, speed: f64, playing: bool) -> io::Result<Handle> {
    let (handle, engine) = app::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("gtop-replay".into()).spawn(move || {
        let speed = SPEEDS.iter().position(|known| *known >= speed).unwrap_or(SPEEDS.len() - 1);
        runtime.block_on(run(&mut player, engine, speed, playing));
    })?;
    Ok(handle)
}

async fn run(player: &mut Player, engine: Engine, speed: usize, playing: bool) {
    let Engine { snapshots, mut requests, .. } = engine;
    let mut state = State { speed, playing };
    let mut ticks = interval(PUBLISH_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut follow = interval(FOLLOW);
    let mut last = Instant::now();
    let mut is_new = true;
    loop {
        if is_new {
            snapshots.send_replace(Arc::new(state.snapshot(player)));
        }
        is_new = true;
        tokio::select! {
            request = requests.recv() => {
                let Some(request) = request else { return };
                let answer = match &request.ask {
                    Ask::Close => return,
                    Ask::Replay(wish) => state.fulfil(wish, player),
                    _ => said("this is a recording: what it shows is over"),
                };
                let _ = request.answer.send(answer);
                last = Instant::now();
            }
            _ = ticks.tick(), if state.playing => {
                let now = Instant::now();
                let gone = (now - last).min(PUBLISH_EVERY * 4).as_nanos() as f64 * SPEEDS[state.speed];
                last = now;
                player.advance(player.now().steady.saturating_add(gone as u64), Some(now + WORK));
            }
            _ = follow.tick(), if !player.recording().is_complete() => {
                player.refresh();
            }
            () = tokio::task::yield_now(), if player.wants_more() => {
                is_new = player.fill(Some(Instant::now() + FILL));
            }
            () = snapshots.closed() => return,
        }
        if !state.playing {
            last = Instant::now();
        }
    }
}

struct State {
    speed: usize,
    playing: bool,
}

impl State {
    fn snapshot(&mut self, player: &mut Player) -> crate::model::snapshot::Snapshot {
        let (first, last) = player.range();
        let growing = !player.recording().is_complete();
        let over = player.is_at_end() && player.now().steady >= last && !growing;
        self.playing &= !over;
        // Where time stands still, nothing would bring what is a little old up to date.
        let mut snapshot = if self.playing { player.glance() } else { player.snapshot() };
        if over {
            snapshot.source.link = Link::Ended("the end of the recording".to_owned());
        }
        snapshot.replay = Some(Replay {
            position: player.now().steady.saturating_sub(first),
            length: last - first,
            speed: SPEEDS[self.speed],
            playing: self.playing,
            growing,
            since: player.since().map(|since| since.wall),
        });
        snapshot
    }

    fn fulfil(&mut self, wish: &Wish, player: &mut Player) -> Answer {
        let done = |text: &str| Answer { outcome: Outcome::Done, text: text.to_owned() };
        match wish {
            Wish::PlayPause => {
                self.playing = !self.playing;
                // From the end it begins again.
                if self.playing && player.is_at_end() && player.recording().is_complete() {
                    player.seek(player.range().0);
                }
                done("")
            }
            Wish::Speed { faster } => {
                self.speed = if *faster { self.speed + 1 } else { self.speed.saturating_sub(1) };
                self.speed = self.speed.min(SPEEDS.len() - 1);
                done(&format!("speed ×{}", SPEEDS[self.speed]))
            }
            Wish::Step { ahead } => {
                if player.step(*ahead) {
                    self.playing = false;
                    done("")
                } else {
                    said(if *ahead { "no records come later" } else { "no records came earlier" })
                }
            }
            Wish::Jump(when) => {
                let to = when.of(player.recording());
                player.seek(to);
                done(&beyond(player, to).unwrap_or_default())
            }
            Wish::Find(find) => {
                if player.find(find) {
                    self.playing = false;
                    return done("");
                }
                said(match find {
                    Find::Invalid => "every record's times can be believed",
                    Find::Mark { ahead: true } => "there is no later mark",
                    Find::Mark { ahead: false } => "there is no earlier mark",
                    Find::Kernel(_) => "that kernel does not run again",
                })
            }
        }
    }
}

/// What is to say when a steady time lies outside a recording.
pub(crate) fn beyond(player: &Player, to: u64) -> Option<String> {
    let (first, last) = player.range();
    let length = units::age(last.saturating_sub(first) as f64 / 1e9);
    (to > last).then(|| format!("the recording lasts {length}: this is its end"))
}

fn said(text: &str) -> Answer {
    Answer { outcome: Outcome::Done, text: text.to_owned() }
}
