//! Pure. Tokens that answers tell of.

use tenure_core::model::{Answer, BeatAnswer, ClaimAnswer, UpstreamStanding};

/// The greatest token that an answer tells of; the `floor` of what is asked later.
pub fn greatest_token(answer: &Answer) -> Option<u64> {
    let of_standing =
        |standing: &UpstreamStanding| standing.holders.iter().map(|holder| holder.token).max();
    match answer {
        Answer::Claim(ClaimAnswer::Held { token, .. }) => Some(*token),
        Answer::Claim(ClaimAnswer::Contended { holder: Some(holder), .. }) => Some(holder.token),
        Answer::Renew(answers) => answers
            .iter()
            .filter_map(|answer| match answer {
                BeatAnswer::Held { token, .. } => Some(*token),
                _ => None,
            })
            .max(),
        Answer::Standing(standing) => of_standing(standing),
        Answer::Routes(routes) => routes.routes.iter().map(|route| route.token).max(),
        _ => None,
    }
}
