//! `gtop replay`: the same screen over a recording.

use std::io::{self, Write};
use std::path::PathBuf;

use super::stat::unreadable;
use super::{Outcome, attach};
use crate::replay;
use crate::source::recording::When;
use crate::source::replay::Player;

/// Play a recording: the same screen and the same keys, and keys to move in time.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gtop replay run.gtop\n  gtop replay run.gtop --at 90s --speed 0.5\n  \
                        gtop replay run.gtop --at 17:31:04 --screenshot then.svg")]
pub struct Args {
    /// A recording (.gtop), also one that is still being made, or raw CUPTI buffers (.cuptibuf, .cuptibuf.xz).
    file: PathBuf,
    /// Where to begin: a time since its beginning (90s), or of day (17:31:04).
    #[arg(long, value_name = "T", value_parser = When::parse)]
    at: Option<When>,
    /// How fast, from 0.1 to 100.
    #[arg(long, value_name = "X", value_parser = speed, default_value = "1")]
    speed: f64,
    #[command(flatten)]
    drawing: attach::Drawing,
}

fn speed(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is no speed: 0.1 to 100");
    let speed: f64 = text.trim_start_matches('×').parse().map_err(|_| wrong())?;
    if (0.1..=100.0).contains(&speed) { Ok(speed) } else { Err(wrong()) }
}

/// Plays it.
pub fn run(args: &Args) -> Outcome {
    let mut player = Player::open(&args.file).map_err(unreadable)?;
    let mut note = None;
    if let Some(when) = args.at {
        let to = when.of(player.recording());
        note = replay::beyond(&player, to);
        player.seek(to);
    }
    // A picture of a moment is of that moment, and of everything that led to it.
    let still = args.at.is_some() && args.drawing.is_picture();
    if still {
        player.fill(None);
    }
    let handle = replay::start(player, args.speed, !still)?;
    if still {
        if let Some(note) = note {
            writeln!(io::stderr(), "gtop: {note}")?;
        }
        attach::picture_now(&handle, &args.drawing)
    } else {
        attach::show(handle, note, &args.drawing)
    }
}
