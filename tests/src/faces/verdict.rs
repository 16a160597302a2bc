//! Verdicts of faces.

use super::Face;
use super::lane::Said;
use super::rules::Expected;
use super::terminal;
use super::wire::Reply;

/// A face's verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may stand as it is, whether it was granted or not.
    Accepted,
    /// It may not.
    Refused,
    /// The caller asks too often, or has too much: it was not told.
    Limited,
    /// An answer that no request may bring about.
    Failed(String),
}

/// The refusal of a message of gRPC by its length alone.
const TOO_LONG: &str = "the message must have";
/// Exit status of a command line that is wrong.
const USAGE: i32 = 64;

/// The verdict in an answer.
pub(super) fn of(face: Face, reply: &Reply) -> Verdict {
    match reply {
        Reply::None(cause) => Verdict::Failed(format!("no answer: {cause}")),
        Reply::Http { status, .. } => match status {
            200..=299 | 401 | 403 | 404 | 409 | 410 => Verdict::Accepted,
            400 | 413 | 414 | 422 | 431 => Verdict::Refused,
            429 => Verdict::Limited,
            // A budget says so, too, and names itself.
            503 if text(reply).contains("quota_exceeded") => Verdict::Limited,
            other => Verdict::Failed(format!("status {other}")),
        },
        Reply::Grpc { code, message, .. } => match code {
            tonic::Code::InvalidArgument => Verdict::Refused,
            tonic::Code::ResourceExhausted if message.contains(TOO_LONG) => Verdict::Refused,
            tonic::Code::ResourceExhausted => Verdict::Limited,
            tonic::Code::Ok | tonic::Code::PermissionDenied | tonic::Code::NotFound => {
                Verdict::Accepted
            }
            // A holder whose connection is not known: it is to be asked again.
            tonic::Code::Unavailable if message.contains("last heartbeat was") => Verdict::Accepted,
            other => Verdict::Failed(format!("{other:?}")),
        },
        Reply::Process { code, .. } => match code {
            Some(USAGE) => Verdict::Refused,
            // A key is made, or it is not: nothing else is in the way here.
            Some(1..=78) if face == Face::Keys => Verdict::Refused,
            Some(0 | 1 | 69..=78) => Verdict::Accepted,
            other => Verdict::Failed(format!("exit status {other:?}")),
        },
    }
}

/// The fault of an answer, whatever other faces say.
pub(super) fn fault(
    face: Face,
    reply: &Reply,
    verdict: &Verdict,
    expected: Expected,
) -> Option<String> {
    if let Verdict::Failed(what) = verdict {
        return Some(what.clone());
    }
    let bytes = match reply {
        Reply::Http { body, .. } => &body[..],
        Reply::Grpc { message, .. } => message.as_bytes(),
        Reply::Process { output, .. } => output,
        Reply::None(_) => &[],
    };
    // A gateway tells programs the names of what is there as they are; the page and the commands show them.
    let is_for_programs = matches!(face, Face::Upstream | Face::People | Face::Sessions);
    let is_told = is_for_programs && *verdict == Verdict::Accepted;
    let shown =
        (!is_told).then(|| terminal::danger(bytes).or_else(|| terminal::danger_in_json(bytes)));
    if let Some(danger) = shown.flatten() {
        return Some(format!("the answer has what a terminal interprets: {danger}"));
    }
    match (expected, verdict) {
        (Expected::Accepted, Verdict::Refused) => Some("refused what is good".to_owned()),
        (Expected::Refused, Verdict::Accepted) => Some("accepted what is not".to_owned()),
        _ => None,
    }
}

/// The faces that do not say the same to what all of them must say the same to.
pub(super) fn differing(said: &[Said<'_>]) -> Option<String> {
    let is_told = |it: &&Said<'_>| matches!(it.verdict, Verdict::Accepted | Verdict::Refused);
    let mut alike = said.iter().filter(|it| it.expected == Expected::Alike).filter(is_told);
    let first = alike.next()?;
    let other = alike.find(|it| it.verdict != first.verdict)?;
    let of = |it: &Said<'_>| format!("{}: {:?}", it.call.face, it.verdict);
    Some(format!("{}, {}", of(first), of(other)))
}

/// The answer in words, shortened.
pub(super) fn text(reply: &Reply) -> String {
    let text = match reply {
        Reply::Http { status, body } => format!("{status} {}", String::from_utf8_lossy(body)),
        Reply::Grpc { code, message, .. } => format!("{code:?} {message}"),
        Reply::Process { code, output } => {
            format!("exit status {code:?} {}", String::from_utf8_lossy(output))
        }
        Reply::None(cause) => cause.clone(),
    };
    text.chars().take(400).flat_map(char::escape_debug).collect()
}
