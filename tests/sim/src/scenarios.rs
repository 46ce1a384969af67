//! The scenarios that are built in.

use crate::scenario::{Scenario, ScenarioError};
use std::sync::OnceLock;

const FILES: [(&str, &str); 7] = [
    ("vllm", include_str!("../scenarios/vllm.toml")),
    ("mixed", include_str!("../scenarios/mixed.toml")),
    ("defect", include_str!("../scenarios/defect.toml")),
    ("defect-eager", include_str!("../scenarios/defect-eager.toml")),
    ("quiet", include_str!("../scenarios/quiet.toml")),
    ("leaks", include_str!("../scenarios/leaks.toml")),
    ("storm", include_str!("../scenarios/storm.toml")),
];

/// The built-in scenarios: name, one line of description, TOML.
#[must_use]
pub fn scenarios() -> &'static [(&'static str, &'static str, &'static str)] {
    static LIST: OnceLock<Vec<(&str, &str, &str)>> = OnceLock::new();
    LIST.get_or_init(|| FILES.iter().map(|(name, toml)| (*name, description(toml), *toml)).collect())
}

/// The built-in scenario of this name, or the scenario that this TOML is.
///
/// # Errors
/// It is neither; the message says which scenarios there are, or where the TOML is wrong.
pub fn scenario(name_or_toml: &str) -> Result<Scenario, ScenarioError> {
    if let Some((_, toml)) = FILES.iter().find(|(name, _)| *name == name_or_toml) {
        return Scenario::parse(toml);
    }
    if name_or_toml.contains('=') || name_or_toml.contains('[') {
        return Scenario::parse(name_or_toml);
    }
    let names: Vec<_> = FILES.iter().map(|(name, _)| *name).collect();
    Err(ScenarioError(format!("there is no scenario `{name_or_toml}`; there are {}", names.join(", "))))
}

/// The text of the line `description = "…"`.
fn description(toml: &str) -> &str {
    let line = toml.lines().find_map(|line| line.strip_prefix("description = \"")).unwrap_or_default();
    line.trim_end().trim_end_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_parses_and_says_what_it_is() {
        for (name, description, toml) in scenarios() {
            let scenario = Scenario::parse(toml).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(scenario.description, *description, "{name}");
            assert!(!description.is_empty(), "{name}");
        }
    }

    #[test]
    fn a_wrong_name_is_answered_with_the_right_ones() {
        let error = scenario("vlm").unwrap_err().to_string();
        assert!(error.contains("vllm") && error.contains("quiet"), "{error}");
    }
}
