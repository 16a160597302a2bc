//! Values of fields: good ones, those at an edge, and those that no face may take.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

/// A value of a field, as a face is to write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    /// No UTF-8.
    Bytes(Vec<u8>),
    Number(i128),
    /// A word of JSON as it stands, of another type than the field's.
    Word(String),
    /// The field twice.
    Twice(Box<Value>),
    /// The field is left out although it is required.
    Missing,
}

/// The text of a value that is one.
impl Value {
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn number(&self) -> Option<i128> {
        match self {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }
}

/// A source of choices, all by one seed.
pub(super) struct Chance(ChaCha8Rng);

impl Chance {
    pub(super) fn of(seed: u64) -> Chance {
        use rand_chacha::rand_core::SeedableRng;
        Chance(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.0.next_u64() % end as u64) as usize
    }

    pub(super) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    pub(super) fn id(&mut self) -> u128 {
        u128::from(self.0.next_u64()) << 64 | u128::from(self.0.next_u64())
    }
}

/// Texts that every name may be, however strange: a store, a page and a shell have to take them as names.
const STRANGE: [&str; 16] = [
    "x'); drop table tenure.hold; --",
    "\"..redis.call('flushall')..\"",
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "{{7*7}}${7*7}%{7*7}",
    "%s%n%x%00%0d%0a",
    "../../etc/passwd",
    "\\u001b[31m\\x1b[2J",
    "$(reboot)`reboot`;reboot|reboot",
    "'\"\\`",
    "größe-名前-имя",
    "éäô",
    "\u{5e9}\u{5dc}\u{5d5}\u{5dd} \u{645}\u{631}\u{62d}\u{628}\u{627}",
    "👩\u{200d}👩\u{200d}👧\u{200d}👦",
    "क\u{94d}\u{200d}ष",
    "-1 --help =cmd",
];

/// Texts that nothing may be called: invisible, reordering, not in the normal form, or read as a command by a terminal, a log or a
/// protocol.
const HIDDEN: [&str; 29] = [
    "e\u{301}a\u{308}o\u{302}",
    "nul\0nul",
    "\u{1b}[31mred\u{1b}[0m",
    "\u{1b}]0;title\u{7}",
    "\u{1b}[2J\u{1b}[H",
    "\u{9b}31mred",
    "\u{9d}0;title\u{9c}",
    "bell\u{7}",
    "del\u{7f}",
    "back\u{8}\u{8}\u{8}space",
    "a\r\nset session:admin 0 3600 4",
    "a\nERROR forged line",
    "a\rover",
    "*1\r\n$8\r\nFLUSHALL\r\n",
    "tab\ttab",
    "a\u{b}b\u{c}c",
    "next\u{85}line",
    "line\u{2028}separator",
    "left\u{202e}right",
    "\u{2066}isolate\u{2069}",
    "\u{200f}mark",
    "zero\u{200b}width",
    "\u{feff}order",
    "soft\u{ad}hyphen",
    "join\u{200d}er",
    "\u{200c}joiner",
    "nbsp\u{a0}nbsp",
    "tag\u{e0041}\u{e0042}",
    "filler\u{3164}\u{2800}",
];

/// Texts with white space around them.
const AROUND: [&str; 3] = [" before", "after ", " "];

/// The longest name, bytes.
pub(super) const NAME_MAX: usize = 200;

/// A text of a name, mostly one that some rule is about.
pub(super) fn text(chance: &mut Chance) -> Value {
    let long = |letter: &str, bytes: usize| letter.repeat(bytes / letter.len());
    Value::Text(match chance.below(16) {
        0 => String::new(),
        1 => long("m", NAME_MAX),
        2 => long("ä", NAME_MAX),
        3 => long("n", NAME_MAX + 1),
        4 => long("é", NAME_MAX + 2),
        5 => long("l", *chance.pick(&[255, 256, 512, 1025, 4096, 20_000])),
        // A body of the agent, and a message of the control plane, has 64 KiB.
        6 if chance.one_in(16) => long("b", *chance.pick(&[65_536, 240_000])),
        6 => long("\u{1b}[31m", 1000),
        7 => "a:b".to_owned(),
        8 => (*chance.pick(&AROUND)).to_owned(),
        9 => return Value::Bytes(chance.pick(&INVALID).to_vec()),
        10 => return Value::Word((*chance.pick(&SURROGATES)).to_owned()),
        11 | 12 => (*chance.pick(&STRANGE)).to_owned(),
        _ => (*chance.pick(&HIDDEN)).to_owned(),
    })
}

/// No UTF-8: a lone continuation, a cut letter, an overlong slash, a surrogate, a number beyond Unicode.
pub(super) const INVALID: [&[u8]; 5] =
    [b"a\x80", b"a\xc3", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"];

/// JSON strings that are no text.
pub(super) const SURROGATES: [&str; 4] =
    [r#""\ud800""#, r#""a\udc00b""#, r#""\ud800\ud800""#, r#""\u12""#];

/// A text that is a good name.
pub(super) fn name(chance: &mut Chance) -> String {
    match chance.below(8) {
        0 => (*chance.pick(&STRANGE)).to_owned(),
        _ => format!("name-{}", chance.below(64)),
    }
}

/// A word of JSON that no field has for a value; 1e400 is beyond every number.
pub(super) fn word(chance: &mut Chance) -> Value {
    Value::Word(match chance.below(8) {
        0 => "true".to_owned(),
        1 => "1e400".to_owned(),
        2 => "-1e400".to_owned(),
        3 => "1.5".to_owned(),
        4 => "{}".to_owned(),
        5 => "[[]]".to_owned(),
        6 => format!("{}{}", "[".repeat(200), "]".repeat(200)),
        _ => format!("{}1{}", "{\"a\":".repeat(200), "}".repeat(200)),
    })
}

/// A number, mostly at or beyond an edge of some type.
pub(super) fn number(chance: &mut Chance) -> Value {
    const DAY_MS: i128 = 24 * 3600 * 1000;
    const EDGES: [i128; 24] = [
        -1,
        0,
        1,
        255,
        256,
        1000,
        65_535,
        65_536,
        1_000_000,
        1_000_001,
        DAY_MS,
        DAY_MS + 1000,
        365 * DAY_MS,
        365 * DAY_MS + 1000,
        i32::MAX as i128,
        i32::MAX as i128 + 1,
        i32::MIN as i128,
        i32::MIN as i128 - 1,
        u32::MAX as i128 + 1,
        i64::MAX as i128,
        i64::MIN as i128,
        u64::MAX as i128,
        u64::MAX as i128 + 1,
        -(u64::MAX as i128),
    ];
    Value::Number(*chance.pick(&EDGES))
}

/// True if it is a name: 1 to 200 bytes that can be seen, without white space around them.
pub(super) fn is_name(text: &str) -> bool {
    let is_hidden = HIDDEN.contains(&text) || text.starts_with('\u{1b}');
    (1..=NAME_MAX).contains(&text.len()) && !is_hidden && !AROUND.contains(&text)
}

/// True if it has what no pattern has, either. A joiner is good in some names.
pub(super) fn has_hidden(text: &str) -> bool {
    let is_hidden = HIDDEN.contains(&text) || text.starts_with('\u{1b}');
    is_hidden && !text.contains(['\u{200c}', '\u{200d}'])
}

/// True if it is the name of a tenant or a project, which are parts of keys of stores.
pub(super) fn is_part(text: &str) -> bool {
    is_name(text) && !text.contains(':')
}

/// True if it is nested deeper than anything that is meant.
pub(super) fn is_deep(value: &Value) -> bool {
    matches!(value, Value::Word(word) if word.len() > 100)
}
