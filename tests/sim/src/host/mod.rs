//! A CUDA application without a GPU. It does what a process does in which the driver starts: maps `libcuda.so.1`, loads
//! what `CUDA_INJECTION64_PATH` names and calls its `InitializeInjection`, then lets a scenario's application work.
//!
//! It says where it is in lines on standard output, and does what lines on standard input say, so that a test waits for
//! words and never for time:
//!
//! ```text
//! gtop-sim-host --libs DIR --scenario NAME|FILE [--stepped] [--map-cupti] [--for 2s] [--exit HOW]
//! ```
//!
//! It says `mapped`, `injected RESULT NS` or `not injected: WHY`, and `begun`. With `--for` it then works that long,
//! says `stopped` and the ground truth as a line of JSON, and ends. Without, it answers each line of its input with `ok
//! …` or `error …`: what [`Control`](crate::Control) understands, and
//!
//! - `inject`, `inject PATH`: calls `InitializeInjection` once more, or that of another library,
//! - `unload`: closes the library as often as it was opened and more,
//! - `starved`: says how many pieces of memory the library has asked for,
//! - `seize connections|listeners`: closes every descriptor but the first three and opens its own under their numbers;
//!   `seized` says `untouched` if they are so, and closes them,
//! - `descriptors N`: lets itself have no descriptor from this number on,
//! - `alarms`: says how many alarms came, and how many of them to threads of the library,
//! - `fork exit|_exit|exec|again|hold|inject|work`: a child ends by `exit` or `_exit`, becomes `/bin/true`, calls
//!   `InitializeInjection` and ends by `exit`, does nothing, or calls `InitializeInjection` and does nothing, or one turn
//!   a millisecond, with `work FILE` from when there is such a file. The answer is `child PID STATUS`, without a status while it is alive,
//! - `reap PID`: kills a child,
//! - `exit HOW`: ends by `return`, `exit`, `_exit`, `abort` or `signal N`; so does the end of the input, by `--exit`.
//!
//! What may be wrong with it: `--starve N` and `--starve N-` do not give the library the Nth piece of memory it asks
//! for, or none from there on, if `libcuda.so.1` was preloaded; `--descriptors N` leaves the library so many descriptors
//! to open; `--no-sockets` forbids sockets, `--deadly-sockets` on pain of death, and `--deadly-accept` to
//! let in who connects; `--stack KIB` has the library started on a stack of that size; `--alarms`
//! sends a signal every millisecond; `--no-stderr` closes standard error, and `stderr` then says with which number writing
//! there fails.

mod dl;
mod hardship;
mod process;
mod seize;

use crate::scenario::Span;
use dl::{Driver, Injection};
use hardship::{Forbidden, Starve};
use process::Exit;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What the command line says.
struct Options {
    libs: PathBuf,
    scenario: String,
    stepped: bool,
    map_cupti: bool,
    lasts: Option<Duration>,
    exit: Exit,
    starve: Option<Starve>,
    stack: Option<usize>,
    descriptors: Option<u64>,
    forbidden: Option<(libc::c_long, Forbidden)>,
    alarms: bool,
    no_stderr: bool,
}

/// Runs the host with these arguments. Exit code 2 means wrong usage, 3 that the libraries could not be used.
pub fn main(arguments: impl Iterator<Item = String>) -> ExitCode {
    let options = match Options::parse(arguments) {
        Ok(options) => options,
        Err(error) => return fail(2, &error),
    };
    match run(options) {
        Ok(exit) => exit.go(),
        Err(error) => fail(3, &error),
    }
}

fn fail(code: u8, error: &str) -> ExitCode {
    eprintln!("gtop-sim-host: {error}");
    ExitCode::from(code)
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            libs: PathBuf::from("."),
            scenario: "mixed".into(),
            stepped: false,
            map_cupti: false,
            lasts: None,
            exit: Exit::Return,
            starve: None,
            stack: None,
            descriptors: None,
            forbidden: None,
            alarms: false,
            no_stderr: false,
        };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} wants a value"));
            match argument.as_str() {
                "--libs" => options.libs = value()?.into(),
                "--scenario" => options.scenario = value()?,
                "--stepped" => options.stepped = true,
                "--map-cupti" => options.map_cupti = true,
                "--for" => {
                    let span = Span::parse(&value()?).ok_or("--for wants a time such as 2s")?;
                    options.lasts = Some(Duration::from_nanos(span.0));
                }
                "--exit" => options.exit = Exit::parse(&value()?)?,
                "--starve" => options.starve = Some(Starve::parse(&value()?)?),
                "--stack" => {
                    options.stack = Some(value()?.parse().map_err(|_| "--stack wants a number of KiB")?);
                }
                "--descriptors" => {
                    options.descriptors = Some(value()?.parse().map_err(|_| "--descriptors wants a number")?);
                }
                "--no-sockets" => options.forbidden = Some((libc::SYS_socket, Forbidden::Fails)),
                "--deadly-sockets" => options.forbidden = Some((libc::SYS_socket, Forbidden::Ends)),
                "--deadly-accept" => options.forbidden = Some((libc::SYS_accept4, Forbidden::Ends)),
                "--alarms" => options.alarms = true,
                "--no-stderr" => options.no_stderr = true,
                _ => return Err(format!("unknown argument {argument}")),
            }
        }
        Ok(options)
    }
}

/// Says a line at once.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever listened may be gone; the application works on.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn run(options: Options) -> Result<Exit, String> {
    let driver = Driver::open(&options.libs)?;
    let scenario = match std::fs::read_to_string(&options.scenario) {
        Ok(toml) => toml,
        Err(_) => options.scenario,
    };
    driver.command(&format!("load {} {scenario}", if options.stepped { "stepped" } else { "real" }))?;
    if options.map_cupti {
        dl::open(&options.libs.join("libcupti.so.13"))?;
    }
    say("mapped");
    if let Some((call, how)) = options.forbidden {
        hardship::forbid(call, how)?;
    }
    if options.alarms {
        hardship::alarms()?;
    }
    if options.no_stderr {
        hardship::close_stderr();
    }
    let injection = match std::env::var_os("CUDA_INJECTION64_PATH") {
        None => Err("CUDA_INJECTION64_PATH is not set".into()),
        Some(path) => Injection::open(path.as_ref()),
    };
    match &injection {
        Ok(injection) => {
            if let Some(starve) = options.starve {
                starve.begin("libgtop_shim.so")?;
            }
            if let Some(free) = options.descriptors {
                hardship::leave_descriptors(free)?;
            }
            let before = Instant::now();
            let result = match options.stack {
                Some(kib) => hardship::inject_on(injection, kib)?,
                None => injection.initialize(),
            };
            say(&format!("injected {result} {}", before.elapsed().as_nanos()));
        }
        // The driver goes on without it, and so do we.
        Err(error) => say(&format!("not injected: {error}")),
    }
    driver.command("begin")?;
    say("begun");
    if let Some(lasts) = options.lasts {
        driver.command("run")?;
        std::thread::sleep(lasts);
        driver.command("stop")?;
        say("stopped");
        say(&driver.command("truth")?);
        return Ok(options.exit);
    }
    let mut seized = None;
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let answer = match word {
            "exit" => match Exit::parse(rest) {
                Ok(exit) => {
                    say("ok");
                    return Ok(exit);
                }
                Err(error) => Err(error),
            },
            "inject" if rest.is_empty() => {
                injection.as_ref().map(|it| it.initialize().to_string()).map_err(Clone::clone)
            }
            "inject" => Injection::open(rest.as_ref()).map(|other| other.initialize().to_string()),
            "unload" => injection.as_ref().map(Injection::unload).map_err(Clone::clone),
            "starved" => hardship::starved(),
            "alarms" => Ok(hardship::count_alarms()),
            "stderr" => Ok(hardship::write_stderr()),
            "seize" => seize::seize(rest).map(|now| {
                seized = Some(now);
                String::new()
            }),
            "seized" => seized.take().ok_or_else(|| "nothing is".into()).and_then(seize::Seized::give_back),
            "descriptors" => rest
                .parse()
                .map_err(|_| "descriptors wants a number".to_owned())
                .and_then(hardship::allow_descriptors)
                .map(|()| String::new()),
            "fork" => process::fork(rest, injection.as_ref().ok(), &driver),
            "reap" => process::reap(rest),
            _ => driver.command(&line),
        };
        match answer {
            Ok(text) => say(format!("ok {text}").trim_end()),
            Err(text) => say(&format!("error {text}")),
        }
    }
    Ok(options.exit)
}
