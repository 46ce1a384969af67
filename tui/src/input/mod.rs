//! From keys to actions, and from actions to what the screen shows and what is asked of a shim.

mod apply;
mod ground;
mod jump;
mod key;
mod keymap;
mod line;
mod lists;
mod mouse;
mod replay;
mod typing;

use gtop_protocol::Kind;

pub use apply::{Outcome, answered, apply, press};
pub use ground::{Ground, QUESTION, Told};
pub use key::Key;
pub use keymap::{BINDINGS, Binding, Bound, Context, Found, Group, KeyError, Keymap};
pub use line::Line;
pub use mouse::mouse;
pub use typing::paste;

/// Everything a key can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Leave gtop.
    Quit,
    /// Show or hide the keys.
    Help,
    /// Stop the picture or let it go on.
    Freeze,
    /// The next pane gets the keys.
    NextPane,
    /// The previous pane gets the keys.
    PreviousPane,
    /// Show the tab with this number, from 1.
    Tab(u8),
    /// The next process.
    NextProcess,
    /// Left in the timeline.
    Left,
    /// Right in the timeline.
    Right,
    /// Up.
    Up,
    /// Down.
    Down,
    /// A quarter of the screen to the left.
    PageLeft,
    /// A quarter of the screen to the right.
    PageRight,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// The first row.
    First,
    /// The newest: follow live again, or the last row.
    Last,
    /// Less time in a column.
    ZoomIn,
    /// More time in a column.
    ZoomOut,
    /// The first zoom again.
    ZoomReset,
    /// Follow the newest record again.
    Live,
    /// Begin or end the choice of a stretch of time.
    ChooseRange,
    /// Show the chosen stretch, or all there is.
    ShowRange,
    /// The longest record of the column or of the chosen stretch.
    Longest,
    /// The next gap on the lane.
    NextGap,
    /// The gap before it.
    PreviousGap,
    /// Where the next record with bad times came.
    NextInvalid,
    /// Where the one before it came.
    PreviousInvalid,
    /// The next mark.
    NextMark,
    /// The mark before it.
    PreviousMark,
    /// The next theme.
    Theme,
    /// Copy what is selected.
    Copy,
    /// Write the screen into files.
    Screenshot,
    /// Write the selected executable graph into a file for graphviz.
    Dot,
    /// Show several processes side by side, or one.
    SideBySide,
    /// The next record of the lane.
    NextRecord,
    /// The previous record of the lane.
    PreviousRecord,
    /// Switch a kind on or off.
    Toggle(Kind),
    /// Sort the kernels by the next column.
    Sort,
    /// Sort the other way round.
    SortReverse,
    /// Put kernels into groups.
    Group,
    /// Compare kernels with a moment.
    Compare,
    /// Go to the last record of the selected kernel.
    ShowKernel,
    /// Write a filter.
    Filter,
    /// Choose a kernel by a few letters.
    FindKernel,
    /// Choose a process by a few letters.
    FindProcess,
    /// Send a process a signal.
    Signal,
    /// Put a mark into the stream.
    Mark,
    /// Trace in windows, for at most a hundredth of the process's time, or in full again.
    Budget,
    /// Rest so that another tool can have CUPTI, or watch again.
    Rest,
    /// Record into a new file, or end the recording.
    Record,
    /// Replay: the next moment with records.
    StepAhead,
    /// Replay: the moment with records before.
    StepBack,
    /// Replay: play faster.
    Faster,
    /// Replay: play slower.
    Slower,
    /// Replay: go to a time.
    Jump,
    /// Replay: the first record whose times cannot be believed.
    FirstInvalid,
    /// Replay: the next record of the chosen kernel, or of those the filter shows.
    NextOfKernel,
    /// Show what is selected in full.
    Detail,
    /// Close what lies over the panes.
    Close,
    /// Yes to a question.
    Yes,
    /// No to a question.
    No,
    /// Stop the launched command, too.
    Stop,
    /// Stop gtop like any program of a shell.
    Suspend,
    /// Draw everything again.
    Redraw,
}
