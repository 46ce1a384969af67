//! What the environment asks of the shim.

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
    /// A setting that could not be understood, for the log and a notice.
    pub mistake: Option<String>,
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
            late_graphs: variable("GTOP_GRAPHS").is_some_and(|value| value.as_ref() == "late"),
            v2: false,
            budget_ppm: 0,
            read_only: flag("GTOP_READ_ONLY"),
            log: path("GTOP_LOG"),
            linger_ns: variable("GTOP_LINGER")
                .and_then(|value| value.as_ref().to_str()?.parse::<u64>().ok())
                .unwrap_or(LINGER_MS)
                .saturating_mul(1_000_000),
            runtime_dir: path("XDG_RUNTIME_DIR"),
            temp_dir: path("TMPDIR"),
            toolkit: path("CUDA_HOME").or_else(|| path("CUDA_PATH")),
            mistake: None,
        };
        if let Some(kinds) = variable("GTOP_KINDS") {
            match KindSet::parse(&kinds.as_ref().to_string_lossy()) {
                Ok(kinds) if !kinds.is_empty() => config.kinds = Some(kinds),
                Ok(_) => config.mistake = Some("GTOP_KINDS names no kind; the safe kinds are used".into()),
                Err(name) => {
                    config.mistake =
                        Some(format!("GTOP_KINDS: {name:?} is not a kind; the safe kinds are used"));
                }
            }
        }
        match variable("GTOP_INTERFACE").as_ref().map(|value| value.as_ref().as_bytes()) {
            None | Some(b"v1") => {}
            Some(b"v2") => config.v2 = true,
            Some(_) => config.mistake = Some("GTOP_INTERFACE is neither v1 nor v2; v1 is used".into()),
        }
        if let Some(budget) = variable("GTOP_BUDGET") {
            let text = budget.as_ref().to_string_lossy().into_owned();
            match gtop_protocol::control::parse_percent(&text) {
                Some(ppm) => config.budget_ppm = ppm,
                None => {
                    config.mistake = Some(format!("GTOP_BUDGET: {text:?} is not a percentage from 0 to 100"));
                }
            }
        }
        if let Some(limit) = variable("GTOP_POOL_LIMIT") {
            let text = limit.as_ref().to_string_lossy().into_owned();
            config.pool_limit = text.parse().ok().filter(|limit| *limit > 0);
            if config.pool_limit.is_none() {
                config.mistake = Some(format!("GTOP_POOL_LIMIT: {text:?} is not a number of buffers"));
            }
        }
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
        assert!(!config.early && !config.read_only && config.kinds.is_none() && config.mistake.is_none());
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
        ] {
            let config = config(&[bad]);
            assert!(
                config.mistake.is_some()
                    && config.kinds.is_none()
                    && config.pool_limit.is_none()
                    && !config.v2,
                "{bad:?}"
            );
        }
    }
}
