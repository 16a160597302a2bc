//! The routing table, page by page. The server gives its lines in no order, so that a page is ordered by
//! name in itself only.

use std::collections::BTreeMap;
use std::sync::Arc;

use redis::Value;
use tenure_core::model::Page;
use tenure_wire::{Route, Routes};

use super::super::layout::Layout;
use super::reply::{Items, ReplyError, count, text};
use super::scripts::{self, Invocation};

/// How many leases are looked at in a call; the server may look at some more. A lease takes about 40 us, and the server
/// serves no other client during a call.
const LEASES_PER_CALL: usize = 16;

/// A routing table that is being read.
#[derive(Debug)]
pub(super) struct RoutesPage {
    tenant: Arc<str>,
    name: Option<Arc<str>>,
    cursor: String,
    /// As many lines as are wanted; a step of the scan may give some more.
    limit: usize,
    /// The version of the first page: a change while the rest is read has a greater one, so that a
    /// reader who compares versions reads again.
    version: Option<u64>,
    /// By name; a scan may meet a name twice.
    routes: BTreeMap<String, Route>,
}

impl RoutesPage {
    pub(super) fn new(tenant: Arc<str>, name: Option<Arc<str>>, page: &Page) -> RoutesPage {
        // A cursor that no scan gave starts at the beginning.
        let is_number = |cursor: &&Arc<str>| cursor.parse::<u64>().is_ok();
        let cursor = page.after.as_ref().filter(is_number).map_or("0", |cursor| cursor).to_owned();
        RoutesPage {
            tenant,
            name,
            cursor,
            limit: page.limit,
            version: None,
            routes: BTreeMap::new(),
        }
    }

    pub(super) fn ask(&self, layout: &Layout) -> Invocation {
        let call = Invocation::new(&scripts::ROUTES)
            .key(layout.leases(&self.tenant))
            .key(layout.routes(&self.tenant))
            .arg(layout.lease(&self.tenant, ""))
            .arg(&self.cursor)
            .arg(LEASES_PER_CALL.min(self.limit));
        match &self.name {
            Some(name) => call.arg(name),
            None => call,
        }
    }

    /// Takes a page; whether there is another.
    pub(super) fn take(&mut self, reply: Value) -> Result<bool, ReplyError> {
        let mut items = Items::of(reply)?;
        let version = count(items.next())?;
        self.version.get_or_insert(version);
        self.cursor = text(items.next())?;
        while !items.is_empty() {
            let route = route(&mut items)?;
            self.routes.insert(route.name.clone(), route);
        }
        Ok(self.cursor != "0" && self.routes.len() < self.limit)
    }

    pub(super) fn finish(self) -> Routes {
        Routes {
            version: self.version.unwrap_or_default(),
            routes: self.routes.into_values().collect(),
            total: None,
            cursor: Some(self.cursor).filter(|cursor| cursor != "0"),
        }
    }
}

fn route(items: &mut Items) -> Result<Route, ReplyError> {
    Ok(Route {
        name: text(items.next())?,
        host: text(items.next())?,
        holder: text(items.next())?,
        address: text(items.next())?,
        proxy_id: text(items.next())?,
        partition: u16::try_from(count(items.next())?).unwrap_or(u16::MAX),
        status: text(items.next())?,
        token: count(items.next())?,
        version: count(items.next())?,
    })
}
