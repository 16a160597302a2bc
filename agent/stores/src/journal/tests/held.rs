//! A ledger's disk that answers when it is told to.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::journal::{Note, Scribe};

/// Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct Held {
    pub(crate) notes: Rc<RefCell<Vec<Note>>>,
    answer: Rc<RefCell<Option<io::Result<()>>>>,
}

impl Held {
    /// The outcome of the next look.
    pub(crate) fn answer(&self, answer: io::Result<()>) {
        self.answer.replace(Some(answer));
    }
}

impl Scribe for Held {
    fn start(&mut self, note: Note) {
        self.notes.borrow_mut().push(note);
    }

    fn poll(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.answer.take().map_or(Poll::Pending, Poll::Ready)
    }
}
