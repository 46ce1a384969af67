//! `gtop --attach PID`: view a process.

use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use gtop_protocol::control::Raw;
use ratatui::layout::Size;
use tokio::sync::oneshot;

use super::consent::{self, Consent, Found};
use super::lines::lines;
use super::within::Within;
use super::{Failure, NO_TARGET, Outcome, USAGE, block_on, choose, duration, stat, tell};
use crate::app::{self, Ask, Files, Handle, Newcomers, Request, Strangers};
use crate::config::{Config, Remembered, did_you_mean, nearest};
use crate::export::raw;
use crate::model::names::safe;
use crate::model::snapshot::{Link, Snapshot, SourceKind};
use crate::recorder;
use crate::system::attach::Target;
use crate::system::foreground::ends_by;
use crate::system::nvml;
use crate::system::process::readable;
use crate::system::remote::{Remote, RemoteError};
use crate::view::{self, Baseline, End, Options, Theme, ViewState, render_svg, render_text};

/// What to view.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The process to view, or any ancestor of it; without it, choose one. Where none of them uses CUDA yet, the first
    /// that does is waited for.
    #[arg(long, value_name = "PID", value_parser = super::pid, allow_negative_numbers = true)]
    attach: Option<u32>,
    #[command(flatten)]
    within: Within,
    /// The machine the process runs on, reached by ssh; its shim must be there already.
    #[arg(long, value_name = "USER@HOST", requires = "attach", conflicts_with = "ns")]
    host: Option<String>,
    /// Trace in short windows so that it costs at most PERCENT of the process's time.
    #[arg(long, value_name = "PERCENT", value_parser = super::percent, conflicts_with = "read_only")]
    budget: Option<u32>,
    #[command(flatten)]
    dump: DumpRaw,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    drawing: Drawing,
}

/// Keeping CUPTI's buffers as they are.
#[derive(Clone, Debug, clap::Args)]
#[expect(clippy::struct_field_names, reason = "clap names the options after the fields")]
pub struct DumpRaw {
    /// Write CUPTI's activity buffers as they are into files (.cuptibuf) in DIR, which `gtop stat` opens.
    #[arg(long, value_name = "DIR")]
    dump_raw: Option<PathBuf>,
    /// Which of them: all, or bad, those that hold a record with bad timestamps.
    #[arg(long, value_name = "all|bad", value_parser = which, default_value = "all", requires = "dump_raw")]
    dump_raw_which: Raw,
    /// The most that all files may take together, such as 256M or 4G.
    #[arg(long, value_name = "SIZE", value_parser = bytes, default_value = "1G", requires = "dump_raw")]
    dump_raw_max: u64,
}

impl DumpRaw {
    /// What is asked for, with the folder made.
    pub fn options(&self) -> Result<Option<raw::Options>, Failure> {
        let Some(folder) = self.dump_raw.clone() else { return Ok(None) };
        let options = raw::Options { folder, which: self.dump_raw_which, most: self.dump_raw_max };
        let failed =
            |error| Failure::new(USAGE, format!("--dump-raw {}: {error}", readable(&options.folder)));
        options.prepare().map_err(failed)?;
        Ok(Some(options))
    }
}

fn which(text: &str) -> Result<Raw, String> {
    match text {
        "all" => Ok(Raw::All),
        "bad" => Ok(Raw::Bad),
        _ => Err("all or bad".to_owned()),
    }
}

/// A size such as `256M`, in bytes; units are powers of 1024.
fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("`{unit}` is no unit of size: use K, M, G or T")),
    };
    let number: u64 = number.parse().map_err(|_| format!("`{text}` is no size: use 256M or 4G"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is too much"))
}

/// How to draw.
#[derive(Clone, Debug, clap::Args)]
pub struct Drawing {
    /// Only look: no toggles, no marks, no signals.
    #[arg(long)]
    read_only: bool,
    /// Keep everything in this new file, to be replayed and exported.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    look: Look,
    /// Compare the kernels with those of this recording.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    #[command(flatten)]
    picture: Picture,
}

/// One frame into a file.
#[derive(Clone, Debug, clap::Args)]
pub struct Picture {
    /// Draw one frame into FILE (.txt or .svg) instead of onto the terminal.
    #[arg(long, value_name = "FILE")]
    screenshot: Option<PathBuf>,
    /// When to draw it.
    #[arg(long, value_name = "T", value_parser = duration, default_value = "3s", requires = "screenshot")]
    pub after: Duration,
    /// How large.
    #[arg(long, value_name = "COLSxROWS", value_parser = size, default_value = "120x36", requires = "screenshot")]
    size: Size,
}

type Render = fn(&Snapshot, &ViewState, Size) -> String;

impl Picture {
    /// Whether one is asked for.
    #[must_use]
    pub const fn is_asked(&self) -> bool {
        self.screenshot.is_some()
    }

    /// What draws into the file, by its name.
    pub fn render(&self) -> Result<Render, Failure> {
        let extension = self.screenshot.as_deref().and_then(Path::extension);
        match extension.and_then(OsStr::to_str) {
            Some("txt") => Ok(render_text),
            Some("svg") => Ok(render_svg),
            _ => Err(Failure::new(USAGE, "a screenshot is a .txt or an .svg file")),
        }
    }

    /// Draws what there is now into the file.
    pub fn draw(&self, snapshot: &Snapshot, options: Options) -> Result<(), Failure> {
        let (Some(file), render) = (&self.screenshot, self.render()?) else { return Ok(()) };
        let state = ViewState {
            theme: options.theme.or(options.config.theme).unwrap_or(Theme::DARK),
            read_only: options.read_only || options.config.read_only,
            baseline: options.compare,
            ..ViewState::new(&options.config, options.theme)
        };
        std::fs::write(file, render(snapshot, &state, self.size))
            .map_err(|error| Failure::new(NO_TARGET, format!("{}: {error}", readable(file))))
    }
}

impl Drawing {
    /// Whether a file is drawn and no screen.
    #[must_use]
    pub const fn is_picture(&self) -> bool {
        self.picture.is_asked()
    }

    /// Whether a recording is asked for.
    #[must_use]
    pub const fn is_recorded(&self) -> bool {
        self.record.is_some()
    }

    /// How the screen is run, with the recording to compare with read.
    fn options(&self) -> Result<Options, Failure> {
        let options = self.look.options()?;
        let compare = self.compare.as_deref().map(compared).transpose()?;
        Ok(Options { compare, read_only: self.read_only, ..options })
    }

    /// The file to record into, created, if one is asked for.
    pub fn recorder(&self, label: &str) -> Result<Option<recorder::Options>, Failure> {
        self.record.as_ref().map(|path| new_recording(path, label)).transpose()
    }
}

/// What the kernels of a recording took, to compare with.
fn compared(path: &Path) -> Result<Baseline, Failure> {
    let snapshot = stat::read(path)?;
    let name = path.file_name().unwrap_or(path.as_os_str());
    Ok(Baseline::of_recording(&snapshot, safe(name.as_encoded_bytes())))
}

/// Creates the file of a recording.
pub fn new_recording(path: &Path, label: &str) -> Result<recorder::Options, Failure> {
    recorder::Options::create(path, label)
        .map_err(|error| Failure::new(NO_TARGET, format!("{}: {error}", readable(path))))
}

impl Args {
    /// The theme that is asked for, here or in `gtop.toml`.
    pub(super) fn theme(&self) -> Result<Option<Theme>, Failure> {
        self.drawing.look.theme()
    }
}

/// How the screen looks and what keys do.
#[derive(Clone, Debug, clap::Args)]
pub struct Look {
    /// The tab to begin with, by its number or name: 3, kernels.
    #[arg(long, value_name = "TAB", value_parser = tab)]
    tab: Option<u8>,
    /// dark, light, high-contrast, colour-blind, 16, mono or ascii; by default what suits the terminal.
    #[arg(long, value_name = "NAME", value_parser = theme)]
    theme: Option<Theme>,
    /// What to keep to instead of `$XDG_CONFIG_HOME/gtop/gtop.toml`.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Look {
    /// The options of the screen, with what is written down and remembered.
    pub fn options(&self) -> Result<Options, Failure> {
        let mut config = Config::load(self.config.as_deref()).map_err(|error| Failure::new(USAGE, error))?;
        config.tab = self.tab.unwrap_or(config.tab);
        config.keep_to();
        let remembered = Remembered::load();
        Ok(Options { config, remembered, theme: self.theme, ..Options::default() })
    }

    fn theme(&self) -> Result<Option<Theme>, Failure> {
        Ok(self.theme.or(self.options()?.config.theme))
    }
}

fn theme(name: &str) -> Result<Theme, String> {
    let names = Theme::ALL.map(|(name, _)| name);
    let near = || did_you_mean(nearest(name, names));
    Theme::from_name(name)
        .ok_or_else(|| format!("there is no theme `{name}`{}; there are {}", near(), names.join(", ")))
}

/// A tab's number, from 1.
fn tab(text: &str) -> Result<u8, String> {
    let titles: Vec<String> = view::TABS.iter().map(|tab| tab.title.to_lowercase()).collect();
    let named = titles.iter().position(|title| *title == text.to_lowercase()).map(|at| at + 1);
    let number = named.or_else(|| text.parse().ok()).filter(|number| (1..=titles.len()).contains(number));
    let wrong =
        || format!("there is no tab `{text}`; there are 1 to {}: {}", titles.len(), titles.join(", "));
    number.and_then(|number| u8::try_from(number).ok()).ok_or_else(wrong)
}

/// A size such as `120x36`.
fn size(text: &str) -> Result<Size, String> {
    let wrong = || format!("`{text}` is no size: use COLSxROWS, such as 120x36");
    let (columns, rows) = text.split_once('x').ok_or_else(wrong)?;
    let number = |text: &str| {
        text.parse::<u16>()
            .map_err(|_| wrong())
            .and_then(|n| if n == 0 || n > 1000 { Err(wrong()) } else { Ok(n) })
    };
    Ok(Size::new(number(columns)?, number(rows)?))
}

/// Views the process, or lets the person choose one.
pub fn run(args: &Args) -> Outcome {
    match args.attach {
        None => choose::run(args),
        Some(pid) if let Some(host) = &args.host => elsewhere(host, pid, args),
        Some(pid) => Ok(view(args.within.pid(pid)?, args)?.unwrap_or_else(|| {
            // Whoever does not want the shim put in has seen all there is.
            tell(format_args!(
                "nothing was put in, so there is nothing to watch; process {pid} runs as it did"
            ));
            ExitCode::SUCCESS
        })),
    }
}

impl Args {
    /// Whether the shim may be put into a process, if the person says so.
    pub fn may_inject(&self) -> Result<bool, Failure> {
        Ok(self.consent.under(self.only_looks()?).may_inject())
    }

    /// Whether gtop is to look only, and nothing that is asked for says otherwise.
    fn only_looks(&self) -> Result<bool, Failure> {
        let only = self.drawing.read_only || self.drawing.look.options()?.config.read_only;
        if only && self.budget.is_some() {
            let text = "--budget changes how a process is watched, and read_only = true in gtop.toml lets gtop look only";
            return Err(Failure::new(USAGE, text));
        }
        Ok(only)
    }
}

/// Views a process. `None` is that the shim was not to be put in, so that there is nothing to view.
pub fn view(pid: u32, args: &Args) -> Result<Option<ExitCode>, Failure> {
    let on_screen = !args.drawing.is_picture() && io::stdin().is_terminal() && io::stdout().is_terminal();
    let ask = if on_screen { &consent::on_screen as consent::AskPerson<'_> } else { &consent::in_lines };
    let Some(found) = consent::find(pid, args.consent.under(args.only_looks()?), true, ask)? else {
        return Ok(None);
    };
    let waits_for = found.waits_for(false);
    let Found { targets, done, later, awaited } = found;
    if !on_screen {
        for line in done.iter().chain(&waits_for) {
            tell(line);
        }
    }
    let (label, devices) = (format!("pid {pid}"), nvml::Options::default());
    let record = args.drawing.recorder(&label)?;
    let files = Files { record, dump: args.dump.options()?, done: done.clone() };
    let strangers = match later {
        // A person is asked on the screen; elsewhere it is said what to do.
        Strangers::Ask if !on_screen => Strangers::Tell,
        later => later,
    };
    let newcomers = Newcomers { strangers, budget: args.budget };
    if let Some(Target { process, .. }) = awaited {
        let label = format!("{} {pid}", process.name);
        let handle = app::wait_for(process, newcomers, &label, devices, files)?;
        return wait(handle, pid, &args.drawing).map(Some);
    }
    let pids: Vec<u32> = targets.iter().map(|target| target.process.pid).collect();
    let handle =
        app::attach(pid, targets, newcomers, SourceKind::Live, &label, devices, files).map_err(|error| {
            args.drawing.record.iter().for_each(|path| recorder::remove_empty(path));
            Failure::new(NO_TARGET, error)
        })?;
    ask_price(&handle, &pids, args.budget);
    let note = done.into_iter().next_back();
    show(handle, note, &args.drawing).map(Some)
}

/// Shows a family of which nobody uses CUDA yet; it is a failure when that stays so to its end.
fn wait(handle: Handle, pid: u32, drawing: &Drawing) -> Outcome {
    let mut snapshots = handle.snapshots.clone();
    let outcome = show(handle, None, drawing)?;
    let last = snapshots.borrow_and_update();
    if matches!(last.source.link, Link::Ended(_))
        && last.source.begins.is_none()
        && last.processes.iter().all(|one| one.records.delivered == 0)
    {
        return Err(Failure::new(NO_TARGET, format!("pid {pid} ended before anything was seen of it")));
    }
    Ok(outcome)
}

/// Asks the shims of these processes to keep to a price, if one is given, in parts per million.
fn ask_price(handle: &Handle, pids: &[u32], budget: Option<u32>) {
    for (pid, ppm) in pids.iter().filter_map(|pid| Some((*pid, budget?))) {
        // What comes of it shows on the screen.
        let (answer, _) = oneshot::channel();
        let _ = handle.requests.try_send(Request { pid, ask: Ask::Budget(ppm), yes: false, answer });
    }
}

/// Views a process of another machine.
fn elsewhere(host: &str, pid: u32, args: &Args) -> Outcome {
    args.only_looks()?;
    if args.consent.is_given() {
        let text = format!(
            "--inject puts the shim into processes of this machine; there, do it first: \
             ssh {host} gtop stat --inject --attach {pid}"
        );
        return Err(Failure::new(USAGE, text));
    }
    let failed = |error: RemoteError| Failure::new(NO_TARGET, error);
    let remote = Remote::connect(host).map_err(failed)?;
    let targets = remote.targets(pid).map_err(failed)?;
    // Our own devices are not those it uses.
    let devices = nvml::Options { program: "/bin/false".into(), ..nvml::Options::default() };
    let label = format!("pid {pid} on {host}");
    let record = args.drawing.recorder(&label)?;
    let files = Files { record, dump: args.dump.options()?, ..Files::default() };
    let pids: Vec<u32> = targets.iter().map(|target| target.process.pid).collect();
    let newcomers = Newcomers::default();
    let handle = app::attach(u32::MAX, targets, newcomers, SourceKind::Live, &label, devices, files)
        .map_err(|error| Failure::new(NO_TARGET, error))?;
    ask_price(&handle, &pids, args.budget);
    show(handle, None, &args.drawing)
}

/// Shows a source on the terminal, or in lines without one.
/// `note` is what the person should know first.
pub fn show(handle: Handle, note: Option<String>, drawing: &Drawing) -> Outcome {
    let closer = handle.closer();
    let on_screen = !drawing.is_picture() && io::stdin().is_terminal() && io::stdout().is_terminal();
    if on_screen {
        let end = screen(handle, note, drawing);
        closer.close().into_iter().for_each(tell);
        return Ok(match end? {
            End::Quit { .. } | End::NoTerminal => ExitCode::SUCCESS,
            End::Signal(signal) => ExitCode::from(ends_by(signal)),
        });
    }
    let outcome = if drawing.is_picture() {
        screenshot(&handle, drawing, drawing.picture.after)
    } else {
        lines(&handle)
    };
    match closer.close() {
        Some(error) if outcome.is_ok() => Err(Failure::new(NO_TARGET, error)),
        _ => outcome,
    }
}

/// Draws what a source that stands still shows into the file that is asked for.
pub fn picture_now(handle: &Handle, drawing: &Drawing) -> Outcome {
    if drawing.is_picture() { screenshot(handle, drawing, Duration::ZERO) } else { Ok(ExitCode::SUCCESS) }
}

/// Draws one frame into a file.
fn screenshot(handle: &Handle, drawing: &Drawing, after: Duration) -> Outcome {
    drawing.picture.render()?;
    block_on(async {
        let mut snapshots = handle.snapshots.clone();
        let _ = snapshots.wait_for(|snapshot| snapshot.time != 0 || !after.is_zero()).await;
        tokio::time::sleep(after).await;
    })?;
    let snapshot = handle.snapshots.borrow().clone();
    drawing.picture.draw(&snapshot, drawing.options()?)?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the screen until the person leaves it.
fn screen(handle: Handle, note: Option<String>, drawing: &Drawing) -> Result<End, Failure> {
    let options = Options { note, ..drawing.options()? };
    block_on(view::run(handle, options))?.map_err(|error| Failure::new(NO_TARGET, error))
}
