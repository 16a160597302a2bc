//! Pure. The epoch of a Redis: what a call of a script that grants says of it, and what the reply says.

use std::time::Duration;

use redis::{Cmd, Value};

use super::super::layout::Layout;
use super::encode::millis;
use super::reply::{Items, ReplyError, count, integer, text_if_any};
use super::scripts::{Invocation, LOOK_EPOCH};
use crate::remote::{EpochPosition, EpochReport, EpochView};

impl Invocation {
    /// The call with the knowledge of the store; [`read`] takes its reply.
    pub fn judged(&self, layout: &Layout, view: &EpochView) -> Cmd {
        let mut command = self.command();
        let key = layout.epoch();
        let (id, writes) = view.known.as_ref().map_or(("-", 0), |it| (&*it.id, it.writes));
        // Where nothing is wrong the counter tells that by itself.
        let counter = if view.is_calm { format!("{key}:{id}") } else { String::new() };
        let (longest, ttl) = (millis(view.longest), millis(view.ttl));
        command.arg(counter).arg(writes).arg(format!("@epoch {key} {id} {longest} {ttl}"));
        command
    }

    /// A look at the epoch, and nothing else.
    pub fn look_epoch() -> Invocation {
        Invocation::new(&LOOK_EPOCH)
    }
}

/// Takes a reply apart: its word on the store, if there is one, and the value that the script returned.
pub fn read(view: &EpochView, reply: Value) -> Result<(Option<EpochReport>, Value), ReplyError> {
    let Value::Array(_) = &reply else { return Ok((None, reply)) };
    let mut items = Items::of(reply)?;
    let writes = integer(items.next())?;
    let reply = items.next();
    let Ok(writes) = u64::try_from(writes) else { return Ok((None, reply)) };
    if items.is_empty() {
        let known = view.known.clone().map(|known| EpochPosition { writes, ..known });
        return Ok((known.map(EpochReport::Counted), reply));
    }
    let known = text_if_any(items.next())?.map(|id| EpochPosition { id: id.into(), writes });
    let longest = Duration::from_millis(count(items.next())?);
    let grants_in = Duration::from_millis(count(items.next())?);
    Ok((Some(EpochReport::Whole { known, longest, grants_in }), reply))
}
