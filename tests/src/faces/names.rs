//! Names that people choose, drawn from all of Unicode: every face says the same of one, in the same words.
//!
//! A name goes through every face that has a word for its role, in every operation there. [`Rule`] says which rule counts
//! where, and why it is not the same one everywhere. Bytes that are no text are nowhere a name: whatever reads a body, a
//! message, a query or a command line refuses them, in its own words.

use std::collections::BTreeMap;

use serde_json::Value as Json;
use tenure::wire::Kind;

use super::Face;
use super::lane::Said;
use super::request::{Field, Operation, Request};
use super::rules::{self, Expected};
use super::terminal;
use super::value::{Chance, NAME_MAX, Value};
use super::verdict::Verdict;
use super::wire::Reply;

/// The rule of a name in a face. docs/api.md has them for users, in the section about names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule {
    /// 1 to 200 bytes that can be seen. The names of locks, sessions, runners, proxies, hosts and subjects.
    Name,
    /// The same without a colon, at which stores split their keys. The names of tenants, of projects, and of masters.
    Part,
    /// The same, and none that Tenure keeps for itself. An agent may ask its gateway for holds in a tenant of Tenure's own.
    Tenant,
    /// 1 to 200 bytes without U+0000. The name of what is there already, which a program without Tenure may have chosen.
    There,
    /// The same without a colon.
    PartThere,
    /// The pattern of a key, which is no name: text that can be seen.
    Pattern,
    /// The same without a colon outside of choices.
    PartPattern,
}

impl Rule {
    /// The rule of a field.
    pub(super) fn of(face: Face, request: &Request, field: Field) -> Rule {
        let is_there = matches!(face, Face::Upstream | Face::People | Face::Sessions)
            && rules::is_about_what_is_there(request.operation);
        let is_part = match field {
            Field::Tenant | Field::Project => true,
            Field::Name => request.kind == Kind::Master && rules::is_of_kind(request.operation),
            _ => false,
        };
        match (face, field) {
            (Face::Keys, Field::Tenant | Field::Project) => Rule::PartPattern,
            (Face::Keys, Field::Name) => Rule::Pattern,
            _ if is_there && is_part => Rule::PartThere,
            _ if is_there => Rule::There,
            (Face::Upstream, Field::Tenant) => Rule::Part,
            (_, Field::Tenant) => Rule::Tenant,
            _ if is_part => Rule::Part,
            _ => Rule::Name,
        }
    }

    /// The verdict on a name, so far as it is beyond doubt: the test knows neither all that is invisible nor all that can be seen.
    pub(super) fn expected(self, value: &Value) -> Expected {
        let Value::Text(text) = value else { return Expected::Refused };
        let has_length = (1..=NAME_MAX).contains(&text.len());
        let is_part = !text.contains(':');
        let verdicts = match self {
            Rule::There => [Some(has_length && !text.contains('\0')), None],
            Rule::PartThere => [Some(has_length && !text.contains('\0') && is_part), None],
            Rule::Name => [Some(has_length), is_seen(text)],
            Rule::Part => [Some(has_length && is_part), is_seen(text)],
            Rule::Tenant => [Some(has_length && is_part && text != OWN_TENANT), is_seen(text)],
            // A text may be a bad pattern; spaces around it are part of it.
            Rule::Pattern | Rule::PartPattern => {
                [is_seen(text.trim_matches(' ')).filter(|it| !it), None]
            }
        };
        let is_name = !matches!(self, Rule::There | Rule::PartThere);
        match verdicts {
            [Some(false), _] | [_, Some(false)] => Expected::Refused,
            [Some(true), Some(true)] => Expected::Accepted,
            [Some(true), None] if !is_name => Expected::Accepted,
            _ => Expected::Either,
        }
    }
}

/// True if all of a text can be seen, and false if some of it cannot, so far as that is beyond doubt.
fn is_seen(text: &str) -> Option<bool> {
    let is_outer = |letter: Option<char>| letter.is_some_and(char::is_whitespace);
    let is_hidden = |letter: char| letter.is_whitespace() && letter != ' ';
    let is_hidden =
        |letter| is_hidden(letter) || terminal::is_dangerous(letter) || INVISIBLE.contains(&letter);
    if text.chars().any(is_hidden) || is_outer(text.chars().next()) || is_outer(text.chars().last())
    {
        return Some(false);
    }
    let is_plain = |letter: char| {
        (' '..='~').contains(&letter) || LETTERS.iter().any(|it| it.contains(&letter))
    };
    text.chars().all(is_plain).then_some(true)
}

/// Letters of scripts of two, three and four bytes.
const LETTERS: [std::ops::RangeInclusive<char>; 5] =
    ['à'..='ö', 'а'..='я', 'ぁ'..='ゖ', '一'..='龥', '😀'..='🙏'];
/// Characters that nobody sees, and joiners apart from what they join.
const INVISIBLE: [char; 18] = [
    '\u{ad}',
    '\u{34f}',
    '\u{115f}',
    '\u{1160}',
    '\u{17b4}',
    '\u{180e}',
    '\u{200b}',
    '\u{2060}',
    '\u{2064}',
    '\u{2800}',
    '\u{3164}',
    '\u{fe0f}',
    '\u{feff}',
    '\u{ffa0}',
    '\u{fff9}',
    '\u{1d173}',
    '\u{e0041}',
    '\u{e01ef}',
];
/// Characters that change the direction of a text, separate, or join.
const CONTROLS: [char; 16] = [
    '\u{61c}', '\u{200c}', '\u{200d}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}', '\u{202a}',
    '\u{202d}', '\u{202e}', '\u{2066}', '\u{2069}', '\u{206a}', '\u{a0}', '\u{3000}', '\u{fffd}',
];
/// Characters that a protocol, a shell, a store or a pattern takes for its own.
const SIGNS: [char; 16] =
    [':', '/', '%', '"', '\'', '\\', '\n', '\r', '-', ' ', '=', '*', '[', '{', '$', '@'];

/// A tenant in which no program has a part.
const OWN_TENANT: &str = "tenure.gateways";

/// What a name is the name of, and the operations in which some face has a word for it.
const ROLES: [(Field, &[Operation]); 7] = {
    use Operation::*;
    [
        (Field::Name, &[Take, Inspect, History, Routes, Revoke, Record, Beat, Release, Key]),
        (Field::Tenant, &[Register, Take, Inspect, Routes, Revoke, Members, Key]),
        (Field::Project, &[Register, Members, Key]),
        (Field::Holder, &[Register, Take, Beat, Release]),
        (Field::ProxyId, &[Proxy, Take]),
        (Field::Host, &[Register, Take, Hello]),
        (Field::Subject, &[Key]),
    ]
};
/// How often each is drawn: those that most faces have, more often.
const OFTEN: [usize; 12] = [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 5];

/// A name in all its operations.
pub(super) fn draw(seed: u64) -> Vec<Request> {
    let mut chance = Chance::of(seed);
    // A process takes as long as many calls.
    let role = if chance.one_in(12) { 6 } else { *chance.pick(&OFTEN) };
    let (field, operations) = ROLES[role];
    let kind = match field {
        Field::ProxyId => Kind::Lease,
        _ if chance.one_in(3) => Kind::Lease,
        _ => *chance.pick(&Kind::ALL),
    };
    let value = match field {
        Field::Tenant if chance.one_in(16) => Value::Text(OWN_TENANT.to_owned()),
        _ => value(&mut chance),
    };
    // One of the commands for each name: most of its operations have one.
    let dear = *chance.pick(operations);
    let named = |operation: &Operation| {
        let is_dear = *operation == dear || *operation == Operation::Take;
        Request::with_name(seed, *operation, kind, (field, value.clone()), is_dear)
    };
    let is_asked =
        |it: &&Operation| **it != Operation::Key || field == Field::Subject || dear == **it;
    operations.iter().filter(is_asked).map(named).collect()
}

fn value(chance: &mut Chance) -> Value {
    let name = name(chance);
    match chance.below(20) {
        0 => {
            let mut bytes = name.into_bytes();
            let at = chance.below(bytes.len() + 1);
            bytes.splice(at..at, chance.pick(&super::value::INVALID).iter().copied());
            Value::Bytes(bytes)
        }
        1 => Value::Word((*chance.pick(&super::value::SURROGATES)).to_owned()),
        _ => Value::Text(name),
    }
}

/// A name of 0 to 300 bytes, often beside the greatest length. Half of them are of letters but for one place.
fn name(chance: &mut Chance) -> String {
    let bytes = match chance.below(8) {
        0 => 0,
        1 | 2 => 1 + chance.below(3),
        3 | 4 => NAME_MAX - 1 + chance.below(3),
        5 => chance.below(301),
        _ => 4 + chance.below(36),
    };
    let (odd, odd_at) = (chance.below(3), chance.below(bytes + 1));
    let is_hyphened = chance.one_in(24);
    let mut name = String::new();
    while name.len() < bytes {
        let letter = match odd {
            _ if name.is_empty() && is_hyphened => '-',
            0 => any(chance),
            1 if name.len() <= odd_at && odd_at < name.len() + 4 => any(chance),
            _ => plain(chance),
        };
        let left = bytes - name.len();
        name.push(if letter.len_utf8() <= left { letter } else { 'n' });
    }
    name
}

fn plain(chance: &mut Chance) -> char {
    let range = chance.pick(&LETTERS).clone();
    let letter = match chance.below(3) {
        0 => pick_of(*range.start(), *range.end(), chance),
        1 => pick_of('!', '~', chance),
        _ => pick_of('a', 'z', chance),
    };
    letter.unwrap_or('n')
}

/// A character of any plane, of the controls, or of those that something takes for its own.
fn any(chance: &mut Chance) -> char {
    let drawn = match chance.below(12) {
        0 => pick_of('\0', '\u{1f}', chance),
        1 => pick_of('\u{7f}', '\u{9f}', chance),
        2 => Some(*chance.pick(&INVISIBLE)),
        3 => Some(*chance.pick(&CONTROLS)),
        4 | 5 => Some(*chance.pick(&SIGNS)),
        6 => pick_of('\u{a0}', '\u{ffff}', chance),
        7 => pick_of('\u{2000}', '\u{20ff}', chance),
        // Planes.
        _ => char::from_u32((chance.below(17) << 16 | chance.below(0x1_0000)) as u32),
    };
    drawn.unwrap_or('\u{d7ff}')
}

fn pick_of(from: char, to: char, chance: &mut Chance) -> Option<char> {
    let (from, to) = (u32::from(from), u32::from(to));
    char::from_u32(from + chance.below((to - from + 1) as usize) as u32)
}

/// The words of a refusal that say what is wrong, without what a face puts around them: its name of the field, and where to
/// read on.
fn words(reply: &Reply) -> String {
    let text = match reply {
        Reply::Http { body, .. } => {
            let problem: Json = serde_json::from_slice(body).unwrap_or_default();
            problem["detail"].as_str().unwrap_or_default().to_owned()
        }
        Reply::Grpc { message, .. } => message.clone(),
        Reply::Process { output, .. } => String::from_utf8_lossy(output).trim_end().to_owned(),
        Reply::None(cause) => cause.clone(),
    };
    let rule = text.rsplit_once("the rule: ").map_or(&*text, |(_, rule)| rule);
    let end = ["; see `", "; write kind and name"].iter().filter_map(|end| rule.find(end)).min();
    rule[..end.unwrap_or(rule.len())].to_owned()
}

/// The faces that do not say the same of a name by one rule, or refuse it in other words.
pub(super) fn differing(said: &[Said<'_>]) -> Option<(usize, String)> {
    let mut first: BTreeMap<Rule, (&Said<'_>, Option<String>)> = BTreeMap::new();
    for (at, it) in said.iter().enumerate() {
        let field = it.request.odd.first()?;
        if !it.call.carried.contains(field) {
            continue;
        }
        let is_text = it.request.get(*field).is_some_and(|value| value.text().is_some());
        let words = match it.verdict {
            Verdict::Refused if !is_text => Some(String::new()),
            Verdict::Accepted => None,
            Verdict::Refused => Some(words(&it.reply)),
            Verdict::Limited | Verdict::Failed(_) => continue,
        };
        let rule = Rule::of(it.call.face, it.request, *field);
        let (before, said) = first.entry(rule).or_insert((it, words.clone()));
        if *said != words {
            let of = |it: &Said<'_>| format!("{} ({:?})", it.call.face, it.request.operation);
            let what =
                format!("words by rule {rule:?}, {}: {said:?}, {}: {words:?}", of(before), of(it));
            return Some((at, what));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_drawn_from_all_of_unicode_and_at_all_lengths() {
        let (mut letters, mut lengths, mut firsts) =
            (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (mut roles, mut others) = (BTreeSet::new(), 0);
        for seed in 0..10_000 {
            let requests = draw(seed);
            let field = requests[0].odd[0];
            roles.insert(field);
            match requests[0].get(field) {
                Some(Value::Text(name)) => {
                    letters.extend(name.chars());
                    lengths.insert(name.len());
                    firsts.extend(name.chars().next());
                }
                _ => others += 1,
            }
        }
        let planes: BTreeSet<u32> = letters.iter().map(|letter| u32::from(*letter) >> 16).collect();
        assert_eq!(planes.len(), 17, "{planes:?}");
        let controls = ('\0'..='\u{9f}').filter(|letter| letter.is_control());
        let special = INVISIBLE.into_iter().chain(CONTROLS).chain(SIGNS);
        for letter in controls.chain(special) {
            assert!(letters.contains(&letter), "{letter:?}");
        }
        let borders = [0, 1, NAME_MAX - 1, NAME_MAX, NAME_MAX + 1];
        assert!(borders.iter().all(|length| lengths.contains(length)), "{lengths:?}");
        assert!(lengths.len() > 250 && lengths.last() <= Some(&300), "{lengths:?}");
        assert!(firsts.contains(&'-') && firsts.contains(&'\n'));
        assert_eq!(roles.len(), ROLES.len(), "{roles:?}");
        assert!(others > 500, "{others} are no text");
    }

    #[test]
    fn the_words_of_a_refusal_are_those_of_the_rule() {
        let rule = "1 to 200 bytes; leave it out";
        let detail = format!("name is 'the rule: '; the rule: {rule}");
        let problem = serde_json::json!({ "detail": &detail }).to_string().into_bytes();
        let line = format!("tenure: invalid value: the rule: {rule}; see `tenure ls --help`\n");
        for reply in [
            Reply::Http { status: 422, body: problem },
            Reply::Grpc { code: tonic::Code::InvalidArgument, message: detail },
            Reply::Process { code: Some(64), output: line.into_bytes() },
        ] {
            assert_eq!(words(&reply), rule);
        }
    }
}
