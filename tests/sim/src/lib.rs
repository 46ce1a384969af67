//! A simulated GPU and CUPTI: the C functions of CUPTI's activity interface over a model of its device buffers,
//! fed by an application that a scenario describes.
//!
//! The model holds slots, buffers, the recycling queue and the kinds, as measured on an H200; what a client sees
//! follows from them. A client gets only what it subscribed to and enabled.
//!
//! In a process, a client finds the functions through [`resolve`], as through `dlsym`:
//!
//! ```
//! use gtop_sim::{Pace, Simulation, resolve, scenario};
//!
//! let scenario = scenario("vllm")?;
//! let mut simulation = Simulation::load(&scenario, Pace::Real)?; // CUPTI is there
//! assert!(!resolve(c"cuptiSubscribe").is_null());
//! // A client that wants to be early subscribes here: `scenario.watch` says whether it should, and to what.
//! simulation.run(); // the application makes its graphs and works
//! simulation.stop();
//! assert_eq!(simulation.truth().crash, None);
//! # Ok::<(), gtop_sim::ScenarioError>(())
//! ```
//!
//! Across processes, `gtop-sim-cuda` and `gtop-sim-cupti` are the same thing as `libcuda.so.1` and `libcupti.so.13`
//! ([`artefacts`] lays them out), and [`host`] is an application that loads an injected library as the driver does.

mod abi;
pub mod artefacts;
mod callbacks;
mod client;
mod clock;
mod control;
mod cupti;
mod driver_call;
mod fault;
pub mod host;
mod lane;
mod layout;
mod names;
mod pool;
mod program;
mod replay;
mod scenario;
mod scenarios;
mod trace;
mod truth;
mod version;
mod world;

pub use abi::{count_call, resolve};
pub use callbacks::Api;
pub use control::Control;
pub use scenario::{Context, Direction, Fault, Graph, Scenario, ScenarioError, Span, Step, Thread, Watch};
pub use scenarios::{scenario, scenarios};
pub use truth::{Class, DeviceBuffers, HostBuffers, Kind, Truth};
pub use world::{Pace, Simulation};

/// Starts a scenario: puts the GPU and CUPTI into the process and the application to work, in real time.
/// `scenario` is a built-in name or TOML.
///
/// # Errors
/// There is no such scenario, or the text is none.
pub fn start(scenario: &str) -> Result<Simulation, ScenarioError> {
    let mut simulation = Simulation::load(&crate::scenario(scenario)?, Pace::Real)?;
    simulation.run();
    Ok(simulation)
}
