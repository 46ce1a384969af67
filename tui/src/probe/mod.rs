//! The reproducer of the device-buffer defect of CUPTI 12.9 to 13.2, on whatever GPU and CUPTI there is: one process
//! a row, what it launched against what was recorded of it.

pub mod child;
pub mod json;
pub mod load;
mod row;
mod run;
mod tally;
pub mod text;
mod verdict;

pub use row::{Law, Load, Row, full, quick};
pub use run::{Patience, Ran, Start, run_row};
pub use tally::{Bad, Tally};
pub use verdict::{Answer, Judged, RowVerdict, answer, judge};
