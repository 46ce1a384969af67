//! The library that rides inside a CUDA process.
