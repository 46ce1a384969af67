//! What travels from the shim to the viewer: records, frames, their validity, and what is known of each CUPTI.
//!
//! Nothing here but paths allocates, and nothing blocks, panics or touches the operating system: the shim runs this code on other
//! people's threads, and the viewer runs it on bytes it has no reason to trust. Recordings, which the shim leaves
//! out, allocate within bounds.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::unreachable,
        clippy::todo,
        clippy::disallowed_methods,
        clippy::disallowed_macros
    )
)]

pub mod calls;
pub mod clock;
pub mod control;
pub mod cupti;
mod damage;
pub mod frame;
pub mod kind;
pub mod lifecycle;
pub mod message;
pub mod node_type;
pub mod pool;
pub mod record;
#[cfg(feature = "recording")]
pub mod recording;
pub mod rendezvous;
pub mod validity;
pub mod viewer;
pub mod wire;

pub use damage::Damage;
pub use kind::{Kind, KindSet};
pub use validity::{Notes, Validity};
