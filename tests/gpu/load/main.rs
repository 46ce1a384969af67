//! A CUDA program to watch: keeps a real GPU busy in one of the ways gtop is measured with, and says exactly what
//! it asked the GPU for, so that a test can compare that with what gtop counted.
//!
//! It prints `ready pid=… device=…` once the kernels are compiled, then one line each period (`unix` is the time
//! since the epoch, so that lines can be matched with what was done to the program meanwhile), and last one JSON
//! object. Exit codes: 0 done, 1 a call failed, 2 wrong usage, 3 there is no GPU.

mod process;
mod times;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use gtop::probe::load::{Device, Failure, Plan, Work, Workload};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::{Value, json};

use process::Forks;
use times::Times;

/// Keep a GPU busy, and say with what.
///
/// Example: gtop-load mixed --seconds 10
#[derive(Debug, Parser)]
#[command(name = "gtop-load", verbatim_doc_comment)]
struct Options {
    /// What to do
    #[arg(value_enum)]
    workload: Workload,
    /// End after this many seconds; 0 is never
    #[arg(long, default_value = "10", value_parser = seconds)]
    seconds: Duration,
    /// End after this many turns (a turn replays the graph once) instead
    #[arg(long, value_name = "N", conflicts_with = "seconds")]
    replays: Option<u64>,
    /// Kernel nodes in the graph [default: the workload's own number]
    #[arg(long, value_name = "N")]
    nodes: Option<usize>,
    /// One more kernel, outside the graph, each turn
    #[arg(long)]
    eager: bool,
    /// Instantiate the graph this many seconds after the work began, not before `ready`; until then its operations
    /// are launched one by one
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    late_graph: Option<Duration>,
    /// Instantiate the graph again every so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    rebuild_graph: Option<Duration>,
    /// Fork N children while working, one every 10 ms: half exit at once, half execute /bin/true
    #[arg(long, value_name = "N", default_value_t = 0)]
    fork: u64,
    /// Length of a period, seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    print_every: Duration,
    /// After `ready`, wait for a line on standard input
    #[arg(long)]
    pause_until_stdin: bool,
    /// After the work, keep the context open until standard input ends
    #[arg(long)]
    hold: bool,
    /// Print to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// Why the program ended early.
#[derive(Debug)]
enum Trouble {
    Gpu(Failure),
    System(io::Error),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Gpu(failure)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Trouble::Gpu(failure)) => {
            eprintln!("gtop-load: {failure}");
            ExitCode::from(if failure.is_absence() { 3 } else { 1 })
        }
        Err(Trouble::System(error)) => {
            eprintln!("gtop-load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Trouble> {
    let mut out: Box<dyn Write> = match &options.out {
        Some(path) => Box::new(File::create(path)?),
        None => Box::new(io::stdout()),
    };
    let plan = options.workload.plan(options.nodes, options.eager);
    let device = Device::open()?;
    {
        let mut work = Work::new(&device, &plan);
        if options.late_graph.is_none() {
            work.instantiate()?;
        }
        process::stop_on_signals();
        let (pid, name, driver) = (std::process::id(), &device.name, device.driver);
        say(&mut out, format_args!("ready pid={pid} device={name:?} driver={driver}"))?;
        if options.pause_until_stdin {
            wait_for(|byte| byte == b'\n')?;
        }
        let result = labour(options, &plan, &mut work, &mut out)?;
        say(&mut out, format_args!("{result}"))?;
        if options.hold {
            wait_for(|_| false)?;
        }
    }
    device.close()?;
    Ok(())
}

/// Works until the end that the options set, and returns what was done.
fn labour(
    options: &Options,
    plan: &Plan,
    work: &mut Work<'_>,
    out: &mut dyn Write,
) -> Result<Value, Trouble> {
    let start_unix = unix();
    let start = Instant::now();
    let (mut period, mut whole) = (Times::default(), Times::default());
    let mut forks = Forks::new(options.fork);
    let mut turns = 0;
    let mut next_print = options.print_every;
    let mut next_fork = Duration::ZERO;
    let mut next_graph = options.late_graph.or(options.rebuild_graph);
    loop {
        let now = start.elapsed();
        let left = match options.replays {
            Some(replays) => replays - turns,
            None if !options.seconds.is_zero() && now >= options.seconds => 0,
            None => u64::MAX,
        };
        if left == 0 || process::stopped() {
            break;
        }
        if next_graph.is_some_and(|due| now >= due) {
            work.instantiate()?;
            next_graph = options.rebuild_graph.map(|every| now + every);
        }
        if now >= next_fork {
            forks.tick()?;
            next_fork = now + Duration::from_millis(10);
        }
        let batch = plan.batch.min(left);
        let before = Instant::now();
        work.batch(batch)?;
        let time = before.elapsed();
        turns += batch;
        period.add(time, batch);
        whole.add(time, batch);
        let now = start.elapsed();
        if now >= next_print {
            report(out, now, turns, work, &period)?;
            period.clear();
            next_print = now + options.print_every;
        }
        if !plan.pause.is_zero() {
            std::thread::sleep(plan.pause);
        }
    }
    let elapsed = start.elapsed();
    let end_unix = unix();
    forks.finish()?;
    Ok(json!({
        "schema": "gtop-load/1",
        "workload": format!("{:?}", options.workload).to_lowercase(),
        "pid": std::process::id(),
        "elapsed_seconds": elapsed.as_secs_f64(),
        "start_unix": start_unix,
        "end_unix": end_unix,
        "turns": turns,
        "launched": work.counts.json(),
        "turn_us": whole.json(),
        "forks": forks.json(),
    }))
}

/// The line of a period.
fn report(out: &mut dyn Write, now: Duration, turns: u64, work: &Work<'_>, period: &Times) -> io::Result<()> {
    let counts = work.counts;
    say(
        out,
        format_args!(
            "t={:.2} unix={:.3} turns={turns} kernels={} graph_launches={} us_median={:.2} us_p99={:.2}",
            now.as_secs_f64(),
            unix(),
            counts.kernels,
            counts.graph_launches,
            period.quantile(0.5).unwrap_or(f64::NAN),
            period.quantile(0.99).unwrap_or(f64::NAN),
        ),
    )
}

fn say(out: &mut dyn Write, line: std::fmt::Arguments<'_>) -> io::Result<()> {
    writeln!(out, "{line}")?;
    out.flush()
}

/// Reads standard input until a byte is the one, input ends, or the work is asked to end.
fn wait_for(wanted: impl Fn(u8) -> bool) -> io::Result<()> {
    // Not through the standard library's buffer, which poll cannot see.
    let stdin = io::stdin();
    let mut byte = [0];
    while !process::stopped() {
        let mut ready = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::from(200u8)) {
            Ok(0) | Err(Errno::EINTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        if nix::unistd::read(&stdin, &mut byte)? == 0 || wanted(byte[0]) {
            break;
        }
    }
    Ok(())
}

/// Seconds since the epoch.
fn unix() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
