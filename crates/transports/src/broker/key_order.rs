//! Order per key while publishing: a message is sent after the earlier ones of its topic and key were confirmed.
//!
//! The outbox claims only the head of each key, so a batch usually takes one round. A batch with several messages of a key takes
//! several; messages behind an unconfirmed one are held back, or they would overtake it at the next attempt.

use std::collections::HashMap;

use postrider::failure::Failure;
use postrider::transport::{Message, Published};

use super::Broker;

const HELD_BACK: &str = "BEHIND";

/// One answer per message, in their order.
pub(super) async fn publish(broker: &dyn Broker, batch: &[Message]) -> Vec<Published> {
    let mut answers: Vec<Option<Published>> = vec![None; batch.len()];
    for round in rounds(batch) {
        let ready: Vec<usize> = round
            .iter()
            .filter(|(_, previous)| {
                previous.is_none_or(|index| answers[index] == Some(Published::Confirmed))
            })
            .map(|(index, _)| *index)
            .collect();
        let messages = ready.iter().map(|index| &batch[*index]).collect();
        for (index, answer) in ready.into_iter().zip(broker.publish(messages).await) {
            answers[index] = Some(answer);
        }
    }
    let held_back = || {
        let text =
            "held back: an earlier message of the same key was not published; both are retried";
        Published::Unavailable(Failure::new(HELD_BACK, text))
    };
    answers
        .into_iter()
        .map(|answer| answer.unwrap_or_else(held_back))
        .collect()
}

/// Was this message only held back?
pub(super) fn is_held_back(answer: &Published) -> bool {
    matches!(answer, Published::Unavailable(failure) if failure.code() == HELD_BACK)
}

/// The messages of each round by index, each with the index of its predecessor.
fn rounds(batch: &[Message]) -> Vec<Vec<(usize, Option<usize>)>> {
    let mut rounds: Vec<Vec<(usize, Option<usize>)>> = Vec::new();
    // The latest message of each key so far: its index and its round.
    let mut latest: HashMap<(&str, &str), (usize, usize)> = HashMap::new();
    for (index, message) in batch.iter().enumerate() {
        let key = message.key.as_deref().map(|key| (&*message.topic, key));
        let previous = key.and_then(|key| latest.get(&key).copied());
        let round = previous.map_or(0, |(_, round)| round + 1);
        if round == rounds.len() {
            rounds.push(Vec::new());
        }
        rounds[round].push((index, previous.map(|(index, _)| index)));
        if let Some(key) = key {
            latest.insert(key, (index, round));
        }
    }
    rounds
}

#[cfg(test)]
mod tests {
    use postrider::transport::MessageId;

    use super::*;

    #[test]
    fn a_message_waits_only_for_earlier_ones_of_its_topic_and_key() {
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
            rounds(&batch),
            [
                vec![(0, None), (1, None), (3, None), (4, None), (6, None)],
                vec![(2, Some(0))],
                vec![(5, Some(2))],
            ]
        );
    }
}
