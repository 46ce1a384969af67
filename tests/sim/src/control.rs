//! A simulation driven by lines of text, so that a test can drive one in another process without guessing when.

use crate::scenario::Scenario;
use crate::world::{Pace, Simulation};

/// A place for one simulation, and what can be said to it.
pub struct Control {
    simulation: Option<Simulation>,
    aborts: bool,
}

impl Control {
    /// An empty place in a process of its own: what would crash the real library ends the process.
    #[must_use]
    pub const fn in_process() -> Self {
        Self { simulation: None, aborts: true }
    }

    /// Does one of these, and returns the answer:
    ///
    /// - `load real SCENARIO`, `load stepped SCENARIO`: puts a GPU and a CUPTI there. The scenario is a built-in name or
    ///   the whole rest of the line, line breaks included, as TOML.
    /// - `begin`: the application creates its contexts and graphs.
    /// - `run`, `wait`, `stop`: the application runs by itself, has done its turns, stops.
    /// - `turns N`: a stepped application does so many turns.
    /// - `instantiate GRAPH`: the application makes a new executable graph.
    /// - `hold`, `hold NAME`, `release`: another tool takes CUPTI, or lets go of it. It answers what that tool gets, 0
    ///   or 39.
    /// - `share NAME`: another tool takes CUPTI through v2 and lets others in. The same answer.
    /// - `write`: CUPTI writes into the buffers that it keeps.
    /// - `truth`: the ground truth, as one line of JSON.
    ///
    /// # Errors
    /// Why it was not done.
    pub fn command(&mut self, line: &str) -> Result<String, String> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        if word == "load" {
            return self.load(rest);
        }
        let simulation = self.simulation.as_mut().ok_or("nothing is loaded")?;
        match word {
            "begin" => simulation.begin(),
            "run" => simulation.run(),
            "wait" => simulation.wait(),
            "stop" => simulation.stop(),
            "turns" => simulation.turns(rest.parse().map_err(|_| format!("`{rest}` is no number of turns"))?),
            "instantiate" if simulation.instantiate(rest) => {}
            "instantiate" => return Err(format!("there is no graph `{rest}`")),
            "hold" => {
                let name = if rest.is_empty() { "another tool" } else { rest };
                return Ok(if simulation.hold_cupti(name) { "0" } else { "39" }.into());
            }
            "share" => return Ok(if simulation.share_cupti(rest) { "0" } else { "39" }.into()),
            "release" => simulation.release_cupti(),
            "write" => simulation.write_kept(),
            "truth" => return serde_json::to_string(&simulation.truth()).map_err(|error| error.to_string()),
            _ => return Err(format!("`{word}` is no command")),
        }
        Ok(String::new())
    }

    fn load(&mut self, rest: &str) -> Result<String, String> {
        let (pace, scenario) = rest.split_once(' ').ok_or("load what?")?;
        let pace = match pace {
            "real" => Pace::Real,
            "stepped" => Pace::Stepped,
            _ => return Err(format!("`{pace}` is neither real nor stepped")),
        };
        // The process has room for one.
        self.simulation = None;
        let scenario: Scenario = crate::scenario(scenario).map_err(|error| error.to_string())?;
        let simulation = Simulation::load_with(&scenario, pace, self.aborts);
        self.simulation = Some(simulation.map_err(|error| error.to_string())?);
        Ok(String::new())
    }
}
