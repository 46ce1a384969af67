//! What a thread of the application is about: how far its capture came, and the call it is in.

use crate::sys;
use core::cell::Cell;
use gtop_protocol::calls::Call;
#[cfg(doc)]
use gtop_protocol::lifecycle::What;

/// What a thread of the application has done.
#[derive(Clone, Copy, Default)]
pub(super) struct Doing {
    pub(super) thread: u32,
    /// The name id of the kernel it launched last in a capture.
    pub(super) kernel: u32,
    /// The type of the nodes that are made within the call it is in, where the call says it.
    pub(super) node_type: Option<u8>,
    /// That call.
    pub(super) call: u32,
    /// Whether it is in a call in which the driver makes and destroys graphs of its own.
    pub(super) inner_graphs: bool,
    /// What the graphs are that are made within the call it is in.
    pub(super) makes: Makes,
    /// CUPTI's id of the graph that was last told to be a clone.
    pub(super) cloned: u32,
    /// Whether it is taking a node out of a graph.
    pub(super) removes_node: bool,
    /// The stream to which it launched last in a capture.
    pub(super) stream: u64,
    /// Bytes of the memory that it is freeing.
    pub(super) freeing: u64,
    /// What is known of the stream that it creates: the `detail` of [`What::StreamCreated`].
    pub(super) creates: u32,
    /// Bytes that a node asks for which would be made within the call it is in; 0 once it is made, or where that is not
    /// known.
    pub(super) asks: u64,
    /// Bytes that it has allocated on devices since its capture began, without what became nodes; `None` without a
    /// capture, or with several at once.
    pub(super) allocated: Option<u64>,
}

impl Doing {
    /// An allocation of `bytes` by this call went well within its capture.
    pub(super) fn allocates(mut self, call: &Call, bytes: u64) -> Self {
        let is_node = call.sizes_nodes() && self.asks == 0;
        if call.allocates_on_devices() && !is_node {
            self.allocated = self.allocated.map(|allocated| allocated.saturating_add(bytes));
        }
        self
    }
}

/// What the graphs are that are made within a call.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Makes {
    /// The application's own.
    #[default]
    Own,
    /// A clone, and then the graphs inside of it.
    Clone,
    /// Graphs inside of another one: child graphs, and bodies of conditional nodes.
    Inside,
}

thread_local! {
    static DOING: Cell<Doing> = const {
        Cell::new(Doing {
            thread: 0,
            kernel: 0,
            node_type: None,
            call: 0,
            inner_graphs: false,
            makes: Makes::Own,
            cloned: 0,
            removes_node: false,
            stream: 0,
            freeing: 0,
            creates: 0,
            asks: 0,
            allocated: None,
        })
    };
}

/// What this thread is about. A thread that is ending has forgotten it.
pub(super) fn get() -> Doing {
    let known = DOING.try_with(Cell::get).unwrap_or_default();
    if known.thread != 0 {
        return known;
    }
    let known = Doing { thread: sys::thread_id(), ..known };
    set(known);
    known
}

/// Remembers what this thread is about.
pub(super) fn set(doing: Doing) {
    let _ = DOING.try_with(|known| known.set(doing));
}
