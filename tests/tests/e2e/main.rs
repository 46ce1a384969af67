//! The viewer, the shim and a simulated CUDA application, each as its own process, over the real socket.

mod begin;
mod budget;
mod ctl;
mod disk;
mod faults;
mod files;
mod inject;
mod leave;
mod many;
mod observe;
mod peers;
mod raw;
mod record;
mod slow;
mod soak;
mod stat;
mod states;
mod strangers;
mod systems;
