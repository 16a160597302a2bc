//! Commands that wait for the shell, in the order in which they are to be done.

use std::collections::VecDeque;

use super::command::{Command, Note};
use super::hold::Hold;
use super::journal::Entry;
use super::refusal::Refusal;
use super::request::{Reply, Ticket};
use crate::model::spare;
use crate::time::Boottime;

#[derive(Debug, Default)]
pub(super) struct Outbox(VecDeque<Command>);

impl Outbox {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn push(&mut self, command: Command) {
        self.0.push_back(command);
    }

    pub(super) fn pop(&mut self) -> Option<Command> {
        let command = self.0.pop_front();
        spare::shrink_queue(&mut self.0);
        command
    }

    pub(super) fn answer(&mut self, ticket: Ticket, reply: Reply) {
        self.push(Command::Reply { ticket, reply: Ok(reply) });
    }

    pub(super) fn refuse(&mut self, ticket: Ticket, refusal: Refusal) {
        self.push(Command::Reply { ticket, reply: Err(refusal) });
    }

    pub(super) fn note(&mut self, note: Note) {
        self.push(Command::Note(note));
    }

    pub(super) fn persist(&mut self, entry: Entry) {
        self.push(Command::Persist(entry));
    }

    /// Writes a hold down as it is now.
    pub(super) fn save(&mut self, hold: &Hold) {
        self.persist(Entry::Hold(Box::new(hold.saved())));
    }

    /// Shows a hold on its session's page as it is now.
    pub(super) fn show(&mut self, hold: &Hold) {
        self.show_until(hold, hold.valid_until, hold.state());
    }

    /// Voids the slot of a hold.
    pub(super) fn void(&mut self, hold: &Hold, state: tenure_wire::HoldState) {
        self.show_until(hold, Boottime::ZERO, state);
    }

    fn show_until(&mut self, hold: &Hold, valid_until: Boottime, state: tenure_wire::HoldState) {
        self.push(Command::WritePage {
            session: hold.session(),
            slot: hold.slot,
            hold: hold.id(),
            token: hold.token,
            valid_until,
            state,
        });
    }
}
