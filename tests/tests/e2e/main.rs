//! The viewer, the shim and a simulated CUDA application, each as its own process, over the real socket.

mod ctl;
mod stat;
mod states;
