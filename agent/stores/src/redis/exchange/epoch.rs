//! Pure. The epoch of a Redis in the calls of granting scripts, and in their replies.

use std::time::Duration;

use redis::{Cmd, Value};

use super::super::layout::Layout;
use super::encode::millis;
use super::reply::{Items, ReplyError, count, integer, text_if_any};
use super::scripts::{Invocation, LOOK_EPOCH};
use crate::remote::{EpochPosition, EpochReport, EpochView};

impl Invocation {
    /// The call with the agent's view of the epoch; [`read`] takes the reply.
    pub fn judged(&self, layout: &Layout, view: &EpochView) -> Cmd {
        let mut command = self.command();
        let key = layout.epoch();
        let (id, writes) = view.known.as_ref().map_or(("-", 0), |it| (&*it.id, it.writes));
        // A calm view needs no more than the counter.
        let counter = if view.is_calm { format!("{key}:{id}") } else { String::new() };
        let (longest, ttl) = (millis(view.longest), millis(view.ttl));
        command.arg(counter).arg(writes).arg(format!("@epoch {key} {id} {longest} {ttl}"));
        command
    }

    /// The call that only checks the epoch.
    pub fn look_epoch() -> Invocation {
        Invocation::new(&LOOK_EPOCH)
    }
}

/// Splits a reply into the report on the epoch, if the reply has one, and the value that the script returned.
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
