//! What the environment asks of the shim.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a few texts at the start, for which there is the reserve"
)]

use gtop_protocol::KindSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The shim's settings. Each has an environment variable.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// `GTOP_EARLY=1`: arm inside `InitializeInjection`.
    pub early: bool,
    /// `GTOP_CUPTI`: the library to use.
    pub cupti: Option<PathBuf>,
    /// `GTOP_KINDS`: what arming enables; otherwise [`KindSet::SAFE`].
    pub kinds: Option<KindSet>,
    /// `GTOP_POOL_LIMIT`: device buffers a context may have. Takes effect only with `early`.
    pub pool_limit: Option<u64>,
    /// `GTOP_GRAPHS=late`: a promise that every CUDA graph is instantiated before gtop first watches, as after a
    /// server's warm-up, and none later. Resting can then give everything back on any CUPTI.
    pub late_graphs: bool,
    /// `GTOP_INTERFACE=v2`: subscribe to CUPTI through its interface v2, which shares it with other tools that do, where
    /// the driver allows. Otherwise v1, and v2 only beside a tool that uses it already.
    pub v2: bool,
    /// `GTOP_BUDGET`, percent: the price that tracing is to keep to, in parts per million here; 0 is full tracing.
    pub budget_ppm: u32,
    /// `GTOP_READ_ONLY=1`: refuse requests that change anything.
    pub read_only: bool,
    /// `GTOP_LOG`: a file for what the shim has to say.
    pub log: Option<PathBuf>,
    /// `GTOP_LINGER`, milliseconds: how long to stay armed after the last watcher has left. By default 2 s.
    pub linger_ns: u64,
    /// `XDG_RUNTIME_DIR`: where sockets go first.
    pub runtime_dir: Option<PathBuf>,
    /// `TMPDIR`: where sockets go second.
    pub temp_dir: Option<PathBuf>,
    /// `CUDA_HOME` or `CUDA_PATH`: a toolkit.
    pub toolkit: Option<PathBuf>,
    /// Settings that could not be understood, for the log and a notice each.
    pub mistakes: Vec<String>,
}

/// Milliseconds to linger by default.
const LINGER_MS: u64 = 2000;

impl Config {
    /// The settings in this process's environment.
    #[must_use]
    pub fn from_environment() -> Self {
        Self::from_variables(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    fn from_variables<V: AsRef<OsStr>>(variable: impl Fn(&str) -> Option<V>) -> Self {
        let path = |name: &str| variable(name).map(|value| PathBuf::from(value.as_ref()));
        let flag = |name: &str| {
            variable(name).is_some_and(|value| !matches!(value.as_ref().as_bytes(), b"0" | b"no" | b"false"))
        };
        let mut config = Self {
            early: flag("GTOP_EARLY"),
            cupti: path("GTOP_CUPTI"),
            kinds: None,
            pool_limit: None,
            late_graphs: false,
            v2: false,
            budget_ppm: 0,
            read_only: flag("GTOP_READ_ONLY"),
            log: path("GTOP_LOG"),
            linger_ns: LINGER_MS.saturating_mul(1_000_000),
            runtime_dir: path("XDG_RUNTIME_DIR"),
            temp_dir: path("TMPDIR"),
            toolkit: path("CUDA_HOME").or_else(|| path("CUDA_PATH")),
            mistakes: Vec::new(),
        };
        let text = |name: &str| variable(name).map(|value| value.as_ref().to_string_lossy().into_owned());
        let mut mistakes = Vec::new();
        if let Some(kinds) = text("GTOP_KINDS") {
            match KindSet::parse(&kinds) {
                Ok(kinds) if !kinds.is_empty() => config.kinds = Some(kinds),
                Ok(_) => mistakes.push("GTOP_KINDS names no kind; the safe kinds are used".into()),
                Err(name) => {
                    mistakes.push(format!("GTOP_KINDS: {name:?} is not a kind; the safe kinds are used"));
                }
            }
        }
        match text("GTOP_INTERFACE").as_deref() {
            None | Some("v1") => {}
            Some("v2") => config.v2 = true,
            Some(_) => mistakes.push("GTOP_INTERFACE is neither v1 nor v2; v1 is used".into()),
        }
        match text("GTOP_GRAPHS").as_deref() {
            None => {}
            Some("late") => config.late_graphs = true,
            Some(other) => mistakes.push(format!("GTOP_GRAPHS: {other:?} is not late; nothing is promised")),
        }
        if let Some(text) = text("GTOP_LINGER") {
            match text.parse::<u64>() {
                Ok(ms) => config.linger_ns = ms.saturating_mul(1_000_000),
                Err(_) => mistakes
                    .push(format!("GTOP_LINGER: {text:?} is no number of milliseconds; it is {LINGER_MS}")),
            }
        }
        if let Some(text) = text("GTOP_BUDGET") {
            match gtop_protocol::control::parse_percent(&text) {
                Some(ppm) => config.budget_ppm = ppm,
                None => mistakes.push(format!("GTOP_BUDGET: {text:?} is not a percentage from 0 to 100")),
            }
        }
        if let Some(text) = text("GTOP_POOL_LIMIT") {
            config.pool_limit = text.parse().ok().filter(|limit| *limit > 0);
            if config.pool_limit.is_none() {
                mistakes.push(format!("GTOP_POOL_LIMIT: {text:?} is not a number of buffers"));
            }
        }
        config.mistakes = mistakes;
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(variables: &[(&str, &'static str)]) -> Config {
        Config::from_variables(|name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| *value))
    }

    #[test]
    fn nothing_set_asks_for_nothing() {
        let config = config(&[]);
        assert!(!config.early && !config.read_only && config.kinds.is_none() && config.mistakes.is_empty());
    }

    #[test]
    fn settings_are_read_and_mistakes_are_kept() {
        let good = config(&[
            ("GTOP_EARLY", "1"),
            ("GTOP_KINDS", "kernel"),
            ("GTOP_POOL_LIMIT", "8"),
            ("GTOP_INTERFACE", "v2"),
        ]);
        assert!(good.early && good.v2);
        assert_eq!((good.kinds, good.pool_limit), (KindSet::parse("kernel").ok(), Some(8)));
        assert!(!config(&[("GTOP_READ_ONLY", "0")]).read_only);
        for bad in [
            ("GTOP_KINDS", "kernel,graph"),
            ("GTOP_KINDS", ","),
            ("GTOP_POOL_LIMIT", "0"),
            ("GTOP_INTERFACE", "2"),
            ("GTOP_GRAPHS", "early"),
            ("GTOP_LINGER", "2s"),
            ("GTOP_BUDGET", "much"),
        ] {
            let config = config(&[bad]);
            assert!(
                config.mistakes.len() == 1
                    && config.mistakes[0].starts_with(bad.0)
                    && config.kinds.is_none()
                    && config.pool_limit.is_none()
                    && !config.v2
                    && !config.late_graphs
                    && (config.budget_ppm, config.linger_ns) == (0, LINGER_MS * 1_000_000),
                "{bad:?}"
            );
        }
        let both = config(&[("GTOP_KINDS", "foo"), ("GTOP_POOL_LIMIT", "abc")]);
        assert_eq!(both.mistakes.len(), 2, "{:?}", both.mistakes);
    }
}
