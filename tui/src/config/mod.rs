//! What the person has written down for gtop to keep to.

mod nearest;

pub use nearest::{did_you_mean, nearest};
