//! Order per key at the sender: a message goes out after the earlier ones of its topic and key were confirmed.
//!
//! From the outbox only a key's head comes, so this is one wave as a rule. A batch with several messages of a key
//! goes out in several; what is behind a message that was not confirmed waits, or it would overtake it at the next attempt.

use std::collections::HashMap;

use postrider::failure::Failure;
use postrider::transport::{Message, Published};

use super::Broker;

const BEHIND: &str = "BEHIND";

/// One answer per message, in their order.
pub(super) async fn publish(broker: &dyn Broker, batch: &[Message]) -> Vec<Published> {
    let mut answers: Vec<Option<Published>> = vec![None; batch.len()];
    for wave in waves(batch) {
        let ready: Vec<usize> = wave
            .iter()
            .filter(|(_, before)| {
                before.is_none_or(|place| answers[place] == Some(Published::Confirmed))
            })
            .map(|(place, _)| *place)
            .collect();
        let messages = ready.iter().map(|place| &batch[*place]).collect();
        for (place, answer) in ready.into_iter().zip(broker.publish(messages).await) {
            answers[place] = Some(answer);
        }
    }
    let behind = || {
        let text = "an earlier message of its key was not published; it waits behind it";
        Published::Unavailable(Failure::new(BEHIND, text))
    };
    answers
        .into_iter()
        .map(|answer| answer.unwrap_or_else(behind))
        .collect()
}

/// Was this one only held back?
pub(super) fn waits(answer: &Published) -> bool {
    matches!(answer, Published::Unavailable(failure) if failure.code() == BEHIND)
}

/// By place: who goes in which wave, and behind whom.
fn waves(batch: &[Message]) -> Vec<Vec<(usize, Option<usize>)>> {
    let mut waves: Vec<Vec<(usize, Option<usize>)>> = Vec::new();
    // The last one of each key so far: its place and its wave.
    let mut last: HashMap<(&str, &str), (usize, usize)> = HashMap::new();
    for (place, message) in batch.iter().enumerate() {
        let key = message.key.as_deref().map(|key| (&*message.topic, key));
        let before = key.and_then(|key| last.get(&key).copied());
        let wave = before.map_or(0, |(_, wave)| wave + 1);
        if wave == waves.len() {
            waves.push(Vec::new());
        }
        waves[wave].push((place, before.map(|(place, _)| place)));
        if let Some(key) = key {
            last.insert(key, (place, wave));
        }
    }
    waves
}

#[cfg(test)]
mod tests {
    use postrider::transport::MessageId;

    use super::*;

    #[test]
    fn a_message_follows_the_earlier_ones_of_its_key_and_topic_only() {
        let message = |topic: &str, key: Option<&str>| {
            let mut message = Message::new(MessageId::new(uuid::Uuid::nil()), topic, "1");
            message.key = key.map(Into::into);
            message
        };
        let batch = [
            message("t", Some("a")),
            message("t", None),
            message("t", Some("a")),
            message("t", Some("b")),
            message("other", Some("a")),
            message("t", Some("a")),
            message("t", None),
        ];
        assert_eq!(
            waves(&batch),
            [
                vec![(0, None), (1, None), (3, None), (4, None), (6, None)],
                vec![(2, Some(0))],
                vec![(5, Some(2))],
            ]
        );
    }
}
