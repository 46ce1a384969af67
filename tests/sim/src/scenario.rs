//! Scenarios: which CUPTI, what the application does, and what goes wrong, as TOML.

use crate::callbacks::Api;
use serde::{Deserialize, Deserializer};
use std::fmt;

/// A scenario as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// One line for people.
    #[serde(default)]
    pub description: String,
    /// What `cuptiGetVersion` returns, for example 130001.
    #[serde(default = "default_version")]
    pub cupti: u32,
    /// How a client should watch it so that it shows what it is there for.
    #[serde(default)]
    pub watch: Watch,
    /// What the device buffer pool limit (attribute 2) is before anybody sets it.
    #[serde(default = "default_pool_limit")]
    pub pool_limit: u64,
    /// How long the first CUPTI call keeps its caller waiting.
    #[serde(default)]
    pub attach: Span,
    /// Contexts; without any, one on device 0 with id 1.
    #[serde(default, rename = "context")]
    pub contexts: Vec<Context>,
    /// Executable graphs, instantiated when the application starts.
    #[serde(default, rename = "graph")]
    pub graphs: Vec<Graph>,
    /// Threads of the application.
    #[serde(default, rename = "thread")]
    pub threads: Vec<Thread>,
    /// What goes wrong.
    #[serde(default, rename = "fault")]
    pub faults: Vec<Fault>,
}

/// Advice to whoever watches a scenario.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// Activity kinds to enable, by name; empty: the client's default.
    #[serde(default)]
    pub kinds: Vec<String>,
    /// Whether CUPTI should be called before the application starts, so that its graphs are early.
    #[serde(default)]
    pub early: bool,
}

/// A context.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// Its id in records.
    pub id: u32,
    /// The device it is on.
    #[serde(default)]
    pub device: u32,
}

/// An executable graph.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Graph {
    /// What `launch` and `instantiate` call it.
    pub name: String,
    /// Its nodes in the order they run: kernels, copies and memory sets.
    pub nodes: Vec<Step>,
    /// How many more times its last node is in it each time it is made again, as for a new shape.
    #[serde(default)]
    pub grow: u32,
    /// Bytes that the thread which captures it allocates meanwhile.
    #[serde(default)]
    pub allocates: u64,
}

/// A thread of the application and the stream it works on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thread {
    /// Id of its context.
    #[serde(default = "default_context")]
    pub context: u32,
    /// Id of its stream in records.
    #[serde(default = "default_stream")]
    pub stream: u32,
    /// What it does in a turn.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// A built-in recording to replay in place of `steps`: `vllm`.
    pub replay: Option<String>,
    /// Turns after which it ends; absent: never.
    pub turns: Option<u64>,
    /// A turn begins at most once in this time.
    #[serde(default)]
    pub every: Span,
    /// Kernels a second on average, at most.
    pub rate: Option<f64>,
    /// The API it launches by: `runtime`, `runtime_per_thread`, `driver` or `driver_per_thread`.
    #[serde(default)]
    pub api: Api,
    /// How long after the application it starts.
    #[serde(default)]
    pub after: Span,
    /// By how many percent durations vary, up or down.
    #[serde(default)]
    pub jitter: u32,
}

/// Sorts of device memory that records tell apart.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum MemorySort {
    /// From a memory pool.
    Pool,
    /// Mapped into virtual addresses.
    Mapping,
}

/// One thing done. Exactly one of `kernel`, `copy`, `memset`, `launch`, `instantiate`, `destroy`, `call`, `wait`, `sync`,
/// `alloc` and `free` is given.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Run a kernel of this name.
    pub kernel: Option<String>,
    /// Copy in this direction.
    pub copy: Option<Direction>,
    /// Set this many bytes.
    pub memset: Option<u64>,
    /// Launch this graph.
    pub launch: Option<String>,
    /// Capture and instantiate this graph again, which makes a new executable graph.
    pub instantiate: Option<String>,
    /// With `instantiate`: the executable graph that there was is not destroyed.
    pub keep: Option<bool>,
    /// With `instantiate`: the graph it was made from is not destroyed.
    pub keep_graph: Option<bool>,
    /// Destroy the executable graph that this graph stands for now.
    pub destroy: Option<String>,
    /// Call this function of the driver, for callbacks only: nothing else comes of it. See `driver_call`.
    pub call: Option<String>,
    /// With `call`: the `CUresult` it returns.
    pub result: Option<u32>,
    /// With `call`: the capture mode, the `CUgraphExecUpdateResult`, or the number of the event.
    pub detail: Option<u32>,
    /// With `call`: the graph whose executable it is about.
    pub of: Option<String>,
    /// With `call`: the address that is allocated, freed or set.
    pub address: Option<u64>,
    /// With `call`: the name of the kernel.
    pub symbol: Option<String>,
    /// Do nothing for this long.
    pub wait: Option<Span>,
    /// Synchronise the stream.
    pub sync: Option<bool>,
    /// Allocate this many bytes.
    pub alloc: Option<u64>,
    /// Free this many bytes.
    pub free: Option<u64>,
    /// With `alloc` and `free`: the path of the library that asks for it, where it is not the application itself.
    pub library: Option<String>,
    /// With `alloc` and `free`: `pool` for memory from a memory pool, `mapping` for what is mapped into virtual addresses.
    pub memory: Option<MemorySort>,
    /// Nanoseconds a kernel, copy or memory set takes.
    pub ns: Option<u64>,
    /// Nanoseconds between the end of what ran before and the start of this.
    pub gap: Option<i64>,
    /// Bytes of a copy.
    pub bytes: Option<u64>,
    /// How many times in a row.
    pub times: Option<u32>,
    /// Stream, where it differs from the thread's.
    pub stream: Option<u32>,
    /// Grid of a kernel.
    pub grid: Option<[u32; 3]>,
    /// Block of a kernel.
    pub block: Option<[u32; 3]>,
    /// Cluster of a kernel.
    pub cluster: Option<[u32; 3]>,
    /// Registers of a thread of a kernel.
    pub registers: Option<u16>,
    /// Static and dynamic shared memory of a kernel, in bytes.
    pub shared: Option<[u32; 2]>,
}

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Host to device.
    H2d,
    /// Device to host.
    D2h,
    /// Within a device.
    D2d,
    /// Between devices.
    P2p,
}

/// Something that goes wrong.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// Another tool holds CUPTI: subscribing returns 39 for this long, or until the simulation is told otherwise.
    Busy {
        /// How long after the start; absent: until told.
        #[serde(rename = "for")]
        lasts: Option<Span>,
    },
    /// A call returns an error and does nothing.
    Error {
        /// Its name, for example `cuptiActivityEnable`.
        call: String,
        /// The `CUptiResult` it returns.
        result: u32,
        /// For `cuptiActivityEnable` and `cuptiActivityDisable`: for this kind only.
        kind: Option<u32>,
        /// How many times; absent: always.
        times: Option<u64>,
        /// How many calls go well before.
        #[serde(default)]
        after: u64,
    },
    /// A call keeps its caller waiting.
    Slow {
        /// Its name, for example `cuptiActivityFlushAll`.
        call: String,
        /// For how long.
        by: Span,
    },
    /// A record of a kind nobody knows lies in a buffer, before every so many records.
    UnknownKind {
        /// Records between two of them.
        every: u64,
    },
    /// A buffer comes back with nothing in it, before every so many buffers.
    EmptyBuffer {
        /// Buffers between two of them.
        every: u64,
    },
    /// The GPU works and no record comes, from this many kernel records on.
    Silent {
        /// Kernel records that still come.
        #[serde(default)]
        after: u64,
        /// Kernel records that are withheld; absent: all.
        count: Option<u64>,
    },
    /// The first records after kernels were enabled carry another clock.
    Shift {
        /// How many of them.
        first: u64,
        /// By how many nanoseconds.
        ns: i64,
    },
    /// Kernel records carry timestamps of a class.
    Timestamps {
        /// `zero`, `zero_start`, `zero_end`, `inverted`, `sentinel`, `foreign_clock` or `future`.
        class: crate::truth::Class,
        /// Indexes of kernel records, from 0.
        #[serde(default)]
        at: Vec<u64>,
        /// Every so many kernel records.
        every: Option<u64>,
    },
    /// The first buffers are kept for ever, and written to 100 ms after the client has unsubscribed.
    KeepBuffers {
        /// How many.
        count: u64,
    },
    /// A module is unloaded: the address of a kernel's name comes to hold another name, no longer than the first.
    ReuseName {
        /// The name before.
        name: String,
        /// The name after.
        becomes: String,
        /// Kernel records after which it happens.
        after: u64,
    },
    /// Correlation ids begin here, so that they wrap.
    Correlation {
        /// The first id.
        start: u32,
    },
    /// The last launch of a graph before kernel goes off carries the ends of a later one.
    LateEnds {
        /// How much later.
        by: Span,
    },
    /// CUPTI reports records it dropped.
    Dropped {
        /// How many, each time the client asks.
        count: u64,
    },
}

/// A length of time in nanoseconds, written with a unit: `"200us"`, `"4ms"`, `"5s"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span(pub u64);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            serde::de::Error::custom(format!("`{text}` is no length of time such as \"4ms\" or \"5s\""))
        })
    }
}

impl Span {
    /// Reads a whole number with one of the units `ns`, `us`, `ms`, `s` and `m`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.find(|c: char| !c.is_ascii_digit())?;
        let (number, unit) = text.split_at(digits);
        let unit = match unit {
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            _ => return None,
        };
        number.parse::<u64>().ok()?.checked_mul(unit).map(Self)
    }
}

/// Why a scenario cannot be used.
#[derive(Debug)]
pub struct ScenarioError(pub(crate) String);

impl fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScenarioError {}

impl Scenario {
    /// Reads a scenario from TOML.
    ///
    /// # Errors
    /// The text is no scenario; the message says where.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let mut scenario: Self = toml::from_str(text).map_err(|error| ScenarioError(error.to_string()))?;
        if scenario.contexts.is_empty() {
            scenario.contexts.push(Context { id: default_context(), device: 0 });
        }
        Ok(scenario)
    }
}

const fn default_version() -> u32 {
    130_001
}

const fn default_pool_limit() -> u64 {
    250
}

const fn default_context() -> u32 {
    1
}

const fn default_stream() -> u32 {
    7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_need_a_unit() {
        assert_eq!(Span::parse("4ms"), Some(Span(4_000_000)));
        assert_eq!(Span::parse("5s"), Some(Span(5_000_000_000)));
        for bad in ["", "5", "ms", "-5s", "5 s", "99999999999999s"] {
            assert_eq!(Span::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_misspelt_key_is_an_error_that_names_it() {
        let error = Scenario::parse("cupty = 5").unwrap_err().to_string();
        assert!(error.contains("cupty"), "{error}");
        let error = Scenario::parse("[[thread]]\nevery = \"5\"").unwrap_err().to_string();
        assert!(error.contains("no length of time"), "{error}");
    }
}
