//! Starting a command with the shim: its environment, its output, and what became of it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

use etcetera::base_strategy::{BaseStrategy, Xdg};
use gtop_protocol::KindSet;

use super::attach::INJECTION;
use super::elf::{self, ElfError};
use super::embed::{self, EmbedError};
use super::packages;

/// The exit code when gtop itself fails before the command starts.
pub const EXIT_GTOP: u8 = 125;
/// The exit code when the command was found and cannot be executed.
pub const EXIT_CANNOT_EXECUTE: u8 = 126;
/// The exit code when the command was not found.
pub const EXIT_NOT_FOUND: u8 = 127;

/// The names a CUPTI library may have.
const CUPTI_SONAMES: [&str; 2] = ["libcupti.so.13", "libcupti.so.12"];
/// Logs of commands are kept this long.
const KEEP_LOGS: Duration = Duration::from_hours(7 * 24);

/// What the shim is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Arm inside `InitializeInjection`, before CUDA begins.
    pub early: bool,
    /// The kinds to enable when arming, if not the safe ones.
    pub kinds: Option<KindSet>,
    /// The CUPTI to use, preloaded.
    pub cupti: Option<PathBuf>,
    /// The price that tracing is to keep to, parts per million.
    pub budget_ppm: Option<u32>,
    /// Device buffers CUPTI may allocate for each context; only an early shim can set it in time.
    pub pool_limit: Option<u32>,
    /// Refuse control requests.
    pub read_only: bool,
}

/// Where the command's output goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Where gtop's goes; input too, and signals of the terminal.
    Inherit,
    /// To a file, never through gtop: the command must not be hurt when gtop dies.
    Log(PathBuf),
}

/// Why the command was not started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// There is no shim to load.
    #[error(transparent)]
    Shim(#[from] EmbedError),
    /// Another tool is to be loaded.
    #[error(
        "{INJECTION} is already set to {0}; CUDA loads one library and CUPTI serves one tool: unset it first"
    )]
    OtherTool(PathBuf),
    /// The file for `--cupti` is no CUPTI.
    #[error("--cupti {0}: {1}")]
    Cupti(PathBuf, CuptiError),
    /// The log cannot be made.
    #[error("log {0}: {1}")]
    Log(PathBuf, io::Error),
    /// The command cannot be executed.
    #[error("{0}: {1}")]
    Execute(String, io::Error),
}

/// What is wrong with a CUPTI library.
#[derive(Debug, thiserror::Error)]
pub enum CuptiError {
    /// It is no library.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// It is another library.
    #[error("its SONAME is {0}, not libcupti.so.13 or libcupti.so.12")]
    Soname(String),
    /// The command would load another one beside it.
    #[error(
        "its SONAME is {0}, but the command would load {1} too: CUPTI of another major version beside it"
    )]
    Major(String, PathBuf),
    /// The loader would take the path for several.
    #[error("LD_PRELOAD cannot name a path with blanks or colons")]
    Path,
}

impl LaunchError {
    /// The exit code for it, like that of `env` and `timeout`.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Execute(_, error) if error.kind() == io::ErrorKind::NotFound => EXIT_NOT_FOUND,
            Self::Execute(_, error)
                if !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory) =>
            {
                EXIT_CANNOT_EXECUTE
            }
            _ => EXIT_GTOP,
        }
    }
}

/// The variables to set for the command. `current` reads this process's environment.
pub fn environment(
    options: &Options,
    shim: &Path,
    current: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<(&'static str, OsString)>, LaunchError> {
    if let Some(other) = current(INJECTION).map(PathBuf::from)
        && !other.as_os_str().is_empty()
        && other.file_name() != Some(OsStr::new(embed::FILE_NAME))
    {
        return Err(LaunchError::OtherTool(other));
    }
    let mut variables = vec![(INJECTION, shim.as_os_str().to_owned())];
    if options.early || options.pool_limit.is_some() {
        variables.push(("GTOP_EARLY", "1".into()));
    }
    if let Some(kinds) = options.kinds {
        let names: Vec<_> = kinds.iter().map(gtop_protocol::Kind::name).collect();
        variables.push(("GTOP_KINDS", names.join(",").into()));
    }
    if let Some(limit) = options.pool_limit {
        variables.push(("GTOP_POOL_LIMIT", limit.to_string().into()));
    }
    if let Some(ppm) = options.budget_ppm {
        variables.push(("GTOP_BUDGET", (f64::from(ppm) / 10_000.0).to_string().into()));
    }
    if options.read_only {
        variables.push(("GTOP_READ_ONLY", "1".into()));
    }
    if let Some(cupti) = &options.cupti {
        variables.extend(cupti_variables(cupti, current)?);
    }
    Ok(variables)
}

/// The variables that make a process use this CUPTI and no other.
pub fn cupti_variables(
    cupti: &Path,
    current: impl Fn(&str) -> Option<OsString>,
) -> Result<[(&'static str, OsString); 2], LaunchError> {
    let cupti = check_cupti(cupti).map_err(|error| LaunchError::Cupti(cupti.into(), error))?;
    let mut preload = cupti.clone().into_os_string();
    if let Some(others) = current("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    Ok([("GTOP_CUPTI", cupti.into_os_string()), ("LD_PRELOAD", preload)])
}

/// The absolute path of a CUPTI library. The first copy in a process is the one everybody uses, under its SONAME.
fn check_cupti(path: &Path) -> Result<PathBuf, CuptiError> {
    let path = fs::canonicalize(path).map_err(ElfError::Io)?;
    if path.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(CuptiError::Path);
    }
    let soname = elf::soname(&path)?;
    if CUPTI_SONAMES.contains(&soname.as_str()) { Ok(path) } else { Err(CuptiError::Soname(soname)) }
}

/// The command with the shim, ready to be started.
pub fn prepare(command: &[OsString], options: &Options, output: &Output) -> Result<Command, LaunchError> {
    let shim = embed::unpack()?;
    let variables = environment(options, &shim, |name| std::env::var_os(name))?;
    let [program, args @ ..] = command else {
        return Err(LaunchError::Execute("no command".into(), io::ErrorKind::NotFound.into()));
    };
    if let Some(cupti) = &options.cupti {
        let wrong = |error| LaunchError::Cupti(cupti.clone(), error);
        let soname = elf::soname(cupti).map_err(|error| wrong(error.into()))?;
        if let Some(other) = packages::other_major(program, std::env::var_os("PATH"), &soname) {
            return Err(wrong(CuptiError::Major(soname, other)));
        }
    }
    let mut command = Command::new(program);
    command.args(args).envs(variables);
    if let Output::Log(path) = output {
        let log = open_log(path).map_err(|error| LaunchError::Log(path.clone(), error))?;
        let copy = log.try_clone().map_err(|error| LaunchError::Log(path.clone(), error))?;
        // A group of its own: keys that send signals are meant for the viewer.
        command.stdin(Stdio::null()).stdout(log).stderr(copy).process_group(0);
    }
    Ok(command)
}

/// Starts a command; gtop's death does not end it. Of one that cannot be started no log is left.
pub fn start(command: &mut Command, output: &Output) -> Result<Child, LaunchError> {
    command.spawn().map_err(|error| {
        if let Output::Log(path) = output
            && fs::symlink_metadata(path).is_ok_and(|log| log.is_file() && log.len() == 0)
        {
            let _ = fs::remove_file(path);
        }
        LaunchError::Execute(command.get_program().to_string_lossy().into_owned(), error)
    })
}

/// The exit code that says what became of a command: its own, or 128 + N after signal N.
#[must_use]
pub fn exit_code(status: ExitStatus) -> u8 {
    let signal = || status.signal().map(|signal| 128 + signal);
    status.code().or_else(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(EXIT_GTOP)
}

/// A new log file for a command, named by it and the time, in `$XDG_STATE_HOME/gtop/log`, else the temporary
/// folder's private one. Logs older than a week are removed.
#[must_use]
pub fn log_path(command: &OsStr) -> PathBuf {
    let base = Xdg::new().ok().and_then(|base| base.state_dir()).map(|dir| dir.join("gtop/log"));
    let private = || std::env::temp_dir().join(format!("gtop-{}/log", nix::unistd::geteuid()));
    let dir = base.filter(|dir| make_dir(dir).is_ok()).unwrap_or_else(private);
    let _ = make_dir(&dir);
    remove_old(&dir, SystemTime::now());
    let name = Path::new(command).file_name().unwrap_or(command).to_string_lossy();
    let time = jiff::ZonedDateTime::now().strftime("%Y%m%d-%H%M%S");
    dir.join(format!("{name}-{time}-{}.log", std::process::id()))
}

fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(dir)
}

fn open_log(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).mode(0o600).open(path)
}

fn remove_old(dir: &Path, now: SystemTime) {
    let Ok(logs) = fs::read_dir(dir) else { return };
    for log in logs.flatten().map(|entry| entry.path()) {
        let modified = fs::symlink_metadata(&log).and_then(|log| log.modified());
        let old = modified.is_ok_and(|time| now.duration_since(time).is_ok_and(|age| age > KEEP_LOGS));
        if old && log.extension() == Some(OsStr::new("log")) {
            let _ = fs::remove_file(log);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIM: &str = "/cache/gtop/shim-1/libgtop_shim.so";

    fn variables(
        options: &Options,
        current: &[(&str, &str)],
    ) -> Result<Vec<(&'static str, String)>, LaunchError> {
        let find =
            |name: &str| current.iter().find(|(found, _)| *found == name).map(|(_, value)| value.into());
        let variables = environment(options, Path::new(SHIM), find)?;
        Ok(variables.into_iter().map(|(name, value)| (name, value.into_string().unwrap())).collect())
    }

    #[test]
    fn a_plain_start_sets_one_variable() {
        let expected = vec![(INJECTION, SHIM.to_owned())];
        assert_eq!(variables(&Options::default(), &[]).unwrap(), expected);
        let older = [(INJECTION, "/else/libgtop_shim.so"), ("LD_PRELOAD", "/x.so")];
        assert_eq!(variables(&Options::default(), &older).unwrap(), expected, "an older shim gives way");
        assert_eq!(variables(&Options::default(), &[(INJECTION, "")]).unwrap(), expected);
    }

    #[test]
    fn another_tool_is_not_pushed_aside() {
        let nsys = [(INJECTION, "/opt/nsys/libToolsInjection64.so")];
        let error = variables(&Options::default(), &nsys).unwrap_err();
        assert!(error.to_string().contains("/opt/nsys/libToolsInjection64.so"), "{error}");
        assert_eq!(error.exit_code(), EXIT_GTOP);
    }

    #[test]
    fn options_become_variables_and_a_limit_needs_an_early_shim() {
        let kinds = KindSet::parse("kernel,memcpy").ok();
        let options = Options { kinds, pool_limit: Some(8), read_only: true, ..Options::default() };
        let variables = variables(&options, &[]).unwrap();
        let expected = [
            ("GTOP_EARLY", "1"),
            ("GTOP_KINDS", "kernel,memcpy"),
            ("GTOP_POOL_LIMIT", "8"),
            ("GTOP_READ_ONLY", "1"),
        ];
        assert_eq!(variables[1..], expected.map(|(name, value)| (name, value.to_owned())));
    }

    #[test]
    fn a_cupti_that_is_none_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |path: &Path| {
            let options = Options { cupti: Some(path.into()), ..Options::default() };
            let error = variables(&options, &[]).unwrap_err();
            assert_eq!(error.exit_code(), EXIT_GTOP);
            error.to_string()
        };
        let shim = embed::copy_to(dir.path()).unwrap();
        assert!(refused(&shim).contains("SONAME"), "{}", refused(&shim));
        assert!(refused(Path::new("/etc/passwd")).contains("not a shared library"));
        assert!(refused(Path::new("/no/such/lib")).contains("No such file"));
        let blank = dir.path().join("a b");
        fs::create_dir(&blank).unwrap();
        assert!(refused(&embed::copy_to(&blank).unwrap()).contains("blanks or colons"));
    }

    #[test]
    fn codes_are_those_of_env() {
        let code = |command: &[&str]| {
            let command: Vec<OsString> = command.iter().map(OsString::from).collect();
            let log = Output::Log("/dev/null".into());
            match start(&mut prepare(&command, &Options::default(), &log).unwrap(), &log) {
                Ok(mut child) => exit_code(child.wait().unwrap()),
                Err(error) => error.exit_code(),
            }
        };
        assert_eq!(code(&["true"]), 0);
        assert_eq!(code(&["sh", "-c", "exit 7"]), 7);
        assert_eq!(code(&["sh", "-c", "kill -9 $$"]), 137);
        assert_eq!(code(&["/no/such/command"]), 127);
        assert_eq!(code(&["/etc/passwd"]), 126);
        assert_eq!(code(&["/"]), 126);
    }

    #[test]
    fn output_goes_to_a_file_and_input_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("x.log");
        let command =
            ["sh", "-c", "cat; echo out; echo err >&2; echo $CUDA_INJECTION64_PATH"].map(OsString::from);
        let output = Output::Log(log.clone());
        let mut command = prepare(&command, &Options::default(), &output).unwrap();
        let mut child = start(&mut command, &output).unwrap();
        assert!(child.wait().unwrap().success());
        let text = fs::read_to_string(log).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[..2], ["out", "err"]);
        assert!(lines[2].ends_with(embed::FILE_NAME) && Path::new(lines[2]).is_file());
    }

    #[test]
    fn of_a_command_that_cannot_be_started_no_log_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let output = Output::Log(dir.path().join("x.log"));
        for command in ["/no/such/command", "/etc/passwd"] {
            let mut command = prepare(&[command.into()], &Options::default(), &output).unwrap();
            assert!(start(&mut command, &output).is_err());
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        }
        let Output::Log(log) = &output else { unreachable!() };
        fs::write(log, "of another").unwrap();
        assert!(start(&mut prepare(&["/".into()], &Options::default(), &output).unwrap(), &output).is_err());
        assert_eq!(fs::read_to_string(log).unwrap(), "of another");
    }

    #[test]
    fn old_logs_are_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.log", "b.txt"] {
            fs::write(dir.path().join(name), b"").unwrap();
        }
        let left = || fs::read_dir(dir.path()).unwrap().count();
        remove_old(dir.path(), SystemTime::now());
        assert_eq!(left(), 2);
        remove_old(dir.path(), SystemTime::now() + KEEP_LOGS + Duration::from_mins(1));
        assert_eq!(left(), 1);
        assert!(dir.path().join("b.txt").exists());
    }
}
