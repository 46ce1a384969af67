//! A simulated GPU and CUPTI.
