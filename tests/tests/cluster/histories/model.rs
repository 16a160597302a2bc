//! The rules of a resource that one claim holds at a time, for a checker of somebody else's.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use porcupine_rs::{CheckResult, Model, Operation, check_operations_timeout};

/// The search for an order of one resource's operations may take so long.
const SEARCH_MAX: Duration = Duration::from_secs(60);
/// So many operations are shown of a history without a legal order.
const SHOWN: usize = 80;
/// A longer operation is shown with those of its time, ns.
const LONG: i64 = 5_000_000_000;
/// The time at which an operation returns that never did.
pub(crate) const NEVER: i64 = i64::MAX;

/// A claim, by the number that its caller gave it.
pub(crate) type ClaimNumber = u32;
/// A resource, by its number.
pub(crate) type ResourceNumber = u32;

/// An operation on a resource, and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Granted(ClaimNumber, u64),
    /// Somebody else held it: this one, where the answer says.
    Contended(ClaimNumber, Option<ClaimNumber>),
    /// A claim without an answer: granted, refused, or never heard.
    Unsure(ClaimNumber),
    /// A beat that was answered: the token, or nothing for a claim that had ended.
    Beaten(ClaimNumber, Option<u64>),
    /// True if the claim was there. False may be the answer to a second copy, which the nodes send where the
    /// reply to the first was lost.
    Released(ClaimNumber, Option<bool>),
    /// The end of a claim's time: at its call at the earliest, and whenever it comes.
    Expired(ClaimNumber),
    /// A copy of a claim may have been granted before the one that was answered.
    Unheard(ClaimNumber),
    /// The end of such a copy's time, if it was granted.
    UnheardExpired(ClaimNumber),
    /// A look at the holder.
    Seen(Option<(ClaimNumber, u64)>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    holder: Option<ClaimNumber>,
    /// The holder's caller never heard of it.
    is_unheard: bool,
    /// No token was greater. That of the holder itself, unless nobody has been told it.
    latest: u64,
    is_told: bool,
}

impl State {
    fn granted(&self, to: ClaimNumber) -> State {
        State { holder: Some(to), is_unheard: false, is_told: false, ..self.clone() }
    }

    fn freed(&self, by: ClaimNumber) -> State {
        let holder = self.holder.filter(|holder| *holder != by);
        State { holder, ..self.clone() }
    }

    /// The state in which the holder is known to have this token.
    fn told(&self, token: u64) -> Option<State> {
        let is_legal = if self.is_told { token == self.latest } else { token > self.latest };
        is_legal.then(|| State { latest: token, is_told: true, ..self.clone() })
    }

    fn after(&self, done: &Done) -> Option<State> {
        let is_held_by = |claim: ClaimNumber| self.holder == Some(claim);
        match *done {
            // A claim that was sent again is told of its first copy's grant.
            Done::Granted(claim, token) => match self.holder {
                None => self.granted(claim).told(token),
                Some(_) => None,
            },
            Done::Contended(claim, told) => {
                let other = self.holder.filter(|holder| *holder != claim)?;
                told.is_none_or(|told| told == other).then(|| self.clone())
            }
            Done::Unsure(claim) if self.holder.is_none() => Some(self.granted(claim)),
            Done::Unsure(_) => Some(self.clone()),
            Done::Unheard(claim) if self.holder.is_none() => {
                Some(State { is_unheard: true, ..self.granted(claim) })
            }
            Done::Unheard(_) => Some(self.clone()),
            Done::UnheardExpired(claim) if self.is_unheard => Some(self.freed(claim)),
            Done::UnheardExpired(_) => Some(self.clone()),
            Done::Beaten(claim, Some(token)) if is_held_by(claim) => self.told(token),
            Done::Beaten(_, Some(_)) => None,
            Done::Beaten(claim, None) => (!is_held_by(claim)).then(|| self.clone()),
            Done::Released(claim, Some(true)) if !is_held_by(claim) => None,
            Done::Released(claim, _) | Done::Expired(claim) => Some(self.freed(claim)),
            Done::Seen(None) => self.holder.is_none().then(|| self.clone()),
            Done::Seen(Some((claim, token))) if is_held_by(claim) => self.told(token),
            Done::Seen(Some(_)) => None,
        }
    }
}

/// The model of one such resource.
#[derive(Clone, Debug)]
pub(crate) struct Exclusive;

impl Model for Exclusive {
    type State = State;
    type Op = Done;
    type Metadata = ();

    fn init() -> State {
        State::default()
    }

    fn step(state: &State, done: &Done) -> (bool, State) {
        match state.after(done) {
            Some(after) => (true, after),
            None => (false, state.clone()),
        }
    }
}

/// The operations on all resources; each resource is searched by itself.
#[derive(Default)]
pub(crate) struct History(BTreeMap<ResourceNumber, Vec<Operation<Exclusive>>>);

impl History {
    /// Adds an operation, with the times of its call and its return by one clock, ns.
    pub(crate) fn add(&mut self, resource: ResourceNumber, [call, back]: [i64; 2], done: Done) {
        let operation = Operation {
            client_id: None,
            call_time: call,
            return_time: back,
            op: done,
            metadata: None,
        };
        self.0.entry(resource).or_default().push(operation);
    }

    pub(crate) fn join(&mut self, other: History) {
        for (resource, operations) in other.0 {
            self.0.entry(resource).or_default().extend(operations);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// The resources whose operations have no legal order, or none that was found in time.
    pub(crate) fn illegal(&self) -> Vec<(ResourceNumber, CheckResult)> {
        let checked = self.0.iter().map(|(resource, operations)| {
            (*resource, check_operations_timeout::<Exclusive>(operations, SEARCH_MAX))
        });
        checked.filter(|(_, verdict)| *verdict != CheckResult::Ok).collect()
    }

    /// Tokens that two grants of a resource had.
    pub(crate) fn repeated_tokens(&self) -> Vec<(ResourceNumber, u64)> {
        let repeated = |(resource, operations): (&ResourceNumber, &Vec<Operation<Exclusive>>)| {
            let mut seen = BTreeSet::new();
            let tokens = operations.iter().filter_map(|operation| match operation.op {
                Done::Granted(_, token) => Some(token),
                _ => None,
            });
            let repeated = tokens.filter(|token| !seen.insert(*token));
            repeated.map(|token| (*resource, token)).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(repeated).collect()
    }

    /// Grants in all.
    pub(crate) fn grants(&self) -> usize {
        let all = self.0.values().flatten();
        all.filter(|operation| matches!(operation.op, Done::Granted(..))).count()
    }

    /// Fails with the operations of the first resource that went wrong, up to where it did.
    #[track_caller]
    pub(crate) fn check(&self) {
        assert_eq!(self.repeated_tokens(), []);
        let illegal = self.illegal();
        let Some((resource, _)) = illegal.first() else { return };
        let operations = &self.0[resource];
        let mut returns: Vec<i64> =
            operations.iter().map(|operation| operation.return_time).collect();
        returns.sort_unstable();
        let is_legal = |end: i64| is_legal(&until_then(operations, end));
        let legal = returns.partition_point(|end| is_legal(*end));
        let mut seen = until_then(operations, returns[legal.min(returns.len() - 1)]);
        seen.sort_by_key(|operation| operation.return_time.min(operation.call_time + LONG));
        for Operation { call_time, return_time, op, .. } in
            &seen[seen.len().saturating_sub(SHOWN)..]
        {
            eprintln!("{call_time} {return_time} {op:?}");
        }
        panic!("resources without a legal order: {illegal:?}; above is how the first went wrong");
    }
}

fn is_legal(operations: &[Operation<Exclusive>]) -> bool {
    check_operations_timeout::<Exclusive>(operations, SEARCH_MAX) == CheckResult::Ok
}

/// What was known at this time: of what had not returned, only what it may have done.
fn until_then(operations: &[Operation<Exclusive>], end: i64) -> Vec<Operation<Exclusive>> {
    let known = |operation: &Operation<Exclusive>| {
        let op = match (operation.return_time <= end, &operation.op) {
            (true, op) => op.clone(),
            (false, Done::Granted(claim, _)) => Done::Unsure(*claim),
            (false, Done::Released(claim, _)) => Done::Released(*claim, None),
            (false, op @ (Done::Unsure(_) | Done::Expired(_))) => op.clone(),
            (false, op @ (Done::Unheard(_) | Done::UnheardExpired(_))) => op.clone(),
            (false, Done::Contended(..) | Done::Beaten(..) | Done::Seen(_)) => return None,
        };
        Some(Operation { op, ..operation.clone() })
    };
    let called = operations.iter().filter(|operation| operation.call_time <= end);
    called.filter_map(known).collect()
}
