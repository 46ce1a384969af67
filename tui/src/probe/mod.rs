//! The reproducer of the device-buffer defect of CUPTI 12.9 to 13.2.

pub mod load;
