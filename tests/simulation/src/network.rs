//! The fate of messages between an agent and its upstream.

use std::time::Duration;

use super::plan::Weather;
use super::random::Random;

/// The least time that a message takes. Short, so that safety never rests on a slow network.
const FASTEST: Duration = Duration::from_micros(50);

/// How long a message takes.
pub(crate) fn delay(random: &mut Random, weather: &Weather) -> Duration {
    let longest =
        if random.per_mille(weather.slow_per_mille) { weather.worst } else { weather.usual };
    random.between(FASTEST, longest)
}

/// When the copies of a request arrive: none, one or two of them.
pub(crate) fn request(random: &mut Random, weather: &Weather) -> Vec<Duration> {
    if random.per_mille(weather.lost_per_mille) {
        return Vec::new();
    }
    let mut copies = vec![delay(random, weather)];
    if random.per_mille(weather.twice_per_mille) {
        copies.push(delay(random, weather));
    }
    copies
}

/// When a reply arrives, if it does.
pub(crate) fn reply(random: &mut Random, weather: &Weather) -> Option<Duration> {
    (!random.per_mille(weather.lost_per_mille)).then(|| delay(random, weather))
}

/// When the copies of a hint arrive: none, one or two of them.
pub(crate) fn hint(random: &mut Random, weather: &Weather) -> Vec<Duration> {
    if random.per_mille(weather.hint_per_mille) {
        return Vec::new();
    }
    let mut copies = vec![delay(random, weather)];
    if random.per_mille(weather.hint_per_mille) {
        copies.push(delay(random, weather));
    }
    copies
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_weather_loses_doubles_and_delays_and_calm_weather_does_not() {
        let storm = Weather {
            usual: Duration::from_millis(1),
            worst: Duration::from_secs(3),
            slow_per_mille: 50,
            lost_per_mille: 100,
            twice_per_mille: 100,
            hint_per_mille: 100,
            call_deadline: Duration::from_millis(300),
        };
        let mut random = Random::new(1);
        let fates: Vec<_> = (0..1000).map(|_| request(&mut random, &storm)).collect();
        assert!(fates.iter().any(Vec::is_empty));
        assert!(fates.iter().any(|copies| copies.len() == 2));
        assert!(fates.iter().flatten().any(|delay| *delay > Duration::from_secs(1)));
        let calm = storm.calm();
        for _ in 0..1000 {
            assert_eq!(request(&mut random, &calm).len(), 1);
            assert_eq!(hint(&mut random, &calm).len(), 1);
            assert!(reply(&mut random, &calm).is_some_and(|delay| delay <= calm.usual));
        }
    }
}
