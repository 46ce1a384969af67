//! A screen with one question on it, from taking the terminal to what comes of keys and signals.

use color_eyre::eyre::{Result, bail};
use crossterm::event::{Event, EventStream};
use futures_util::StreamExt;
use ratatui::buffer::Buffer;
use ratatui::layout::Size;

use super::run::Signals;
use crate::input::Key;
use crate::terminal::{self, Guard, Screen};

/// What came.
pub(super) enum Came {
    Key(Key),
    /// A signal that ends it.
    Signal(i32),
    /// The terminal is gone.
    Gone,
    /// Something that asks for no more than to be drawn again.
    Other,
}

/// The terminal, until this is dropped.
pub(super) struct Plain {
    signals: Signals,
    guard: Guard,
    screen: Screen,
    events: EventStream,
}

impl Plain {
    pub(super) fn take() -> Result<Self> {
        let signals = Signals::new()?;
        let guard = Guard::take(false)?;
        Ok(Self { signals, guard, screen: Screen::default(), events: EventStream::new() })
    }

    /// Draws, unless the terminal has no size.
    pub(super) fn show(&mut self, render: impl FnOnce(Size) -> Buffer) -> Result<()> {
        if terminal::panicked() {
            bail!("a part of gtop has panicked; its message is above");
        }
        let size = Screen::size();
        if size.width == 0 || size.height == 0 {
            self.screen.forget();
        } else {
            self.screen.show(render(size))?;
        }
        Ok(())
    }

    /// What comes next; suspending and going on are done here. Nothing is lost when it is dropped before it is ready.
    pub(super) async fn next(&mut self) -> Result<Came> {
        tokio::select! {
            biased;
            () = terminal::panic() => {}
            signal = self.signals.end.recv() => return Ok(Came::Signal(signal)),
            event = self.events.next() => match event {
                Some(Ok(Event::Key(key))) => match Key::from_event(key) {
                    Some(key) if key.is("ctrl-z") => self.suspend().await?,
                    Some(key) => return Ok(Came::Key(key)),
                    None => {}
                },
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Ok(Came::Gone),
            },
            _ = self.signals.suspend.recv() => self.suspend().await?,
            _ = self.signals.go_on.recv() => {
                self.guard.retake()?;
                self.screen.forget();
            }
        }
        Ok(Came::Other)
    }

    async fn suspend(&mut self) -> Result<()> {
        self.signals.stop(&mut self.guard).await?;
        self.screen.forget();
        Ok(())
    }
}
