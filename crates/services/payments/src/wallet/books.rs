//! What a deduction decides; pure. The database locks the accounts before and writes the result after.

use std::collections::HashMap;

use postrider::{
    failure::{Category, Failure},
    transport::Message,
};
use uuid::Uuid;

use crate::model::{Currency, Money, Notice, Outcome, Refusal, TraceContext};

/// A payment to be deducted, as its message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bill {
    /// Which payment.
    pub uuid: Uuid,
    /// In which message it came.
    pub message_id: Uuid,
    /// From which account.
    pub account_id: String,
    /// How much.
    pub money: Money,
    /// The trace that it is part of.
    pub trace: Option<TraceContext>,
}

impl Bill {
    /// Reads a message; one that is no payment never will be.
    pub fn read(message: &Message) -> Result<Self, Failure> {
        let notice: Notice = message.read()?;
        let money = Money::stored(&notice.amount, &notice.currency)
            .filter(|money| money.minor > 0)
            .ok_or_else(|| {
                let text = format!("{:?} {:?} is no amount", notice.amount, notice.currency);
                Failure::with_category("UNREADABLE_PAYLOAD", Category::Data, text)
            })?;
        Ok(Self {
            uuid: notice.uuid,
            message_id: message.id.uuid(),
            account_id: notice.account_id,
            money,
            trace: TraceContext::carried(message.trace.as_deref(), message.headers.as_deref()),
        })
    }
}

/// What an account holds while it is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Purse {
    /// In minor units.
    pub balance: i128,
    /// Of which currency.
    pub currency: Currency,
}

/// What became of a payment at the wallet, to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// Which payment.
    pub uuid: Uuid,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it failed.
    pub reason: Option<&'static str>,
    /// The trace that it is part of.
    pub trace: Option<TraceContext>,
}

/// Deducts each bill in turn from purses that are locked; those who come later find what is left.
pub fn deduct(purses: &mut HashMap<String, Purse>, bills: &[&Bill]) -> Vec<News> {
    let mut pay = |bill: &Bill| match purses.get_mut(&bill.account_id) {
        None => Err(Refusal::UnknownAccount),
        Some(purse) if purse.currency != bill.money.currency => Err(Refusal::CurrencyMismatch),
        Some(purse) if purse.balance < bill.money.minor => Err(Refusal::InsufficientFunds),
        Some(purse) => {
            purse.balance -= bill.money.minor;
            Ok(())
        }
    };
    bills
        .iter()
        .map(|bill| match pay(bill) {
            Ok(()) => News {
                uuid: bill.uuid,
                outcome: Outcome::Succeed,
                reason: None,
                trace: bill.trace.clone(),
            },
            Err(refusal) => News {
                uuid: bill.uuid,
                outcome: Outcome::Failed,
                reason: Some(refusal.as_str()),
                trace: bill.trace.clone(),
            },
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn usd(minor: i128) -> Money {
        Money {
            minor,
            currency: Currency::of("USD").unwrap(),
        }
    }

    fn bill(n: u128, account_id: &str, money: Money) -> Bill {
        Bill {
            uuid: Uuid::from_u128(n),
            message_id: Uuid::from_u128(n),
            account_id: account_id.to_owned(),
            money,
            trace: None,
        }
    }

    #[test]
    fn a_refused_bill_leaves_the_money_to_the_next() {
        let purse = Purse {
            balance: 100,
            currency: usd(0).currency,
        };
        let mut purses = HashMap::from([("a".to_owned(), purse)]);
        let yen = Money {
            minor: 1,
            currency: Currency::of("JPY").unwrap(),
        };
        let bills = [
            bill(1, "a", usd(70)),
            bill(2, "a", usd(70)),
            bill(3, "a", yen),
            bill(4, "b", usd(1)),
            bill(5, "a", usd(30)),
        ];
        let news = deduct(&mut purses, &bills.iter().collect::<Vec<_>>());
        let reasons: Vec<Option<&str>> = news.iter().map(|news| news.reason).collect();
        assert_eq!(
            reasons,
            [
                None,
                Some("INSUFFICIENT_FUNDS"),
                Some("CURRENCY_MISMATCH"),
                Some("UNKNOWN_ACCOUNT"),
                None
            ]
        );
        assert_eq!(purses["a"].balance, 0);
    }

    proptest! {
        #[test]
        fn no_purse_falls_below_zero_and_what_left_is_what_was_paid(
            balance in 0_i128..10_000, amounts in proptest::collection::vec(1_i128..3_000, 0..30)
        ) {
            let purse = Purse { balance, currency: usd(0).currency };
            let mut purses = HashMap::from([("a".to_owned(), purse)]);
            let bills: Vec<Bill> = amounts.iter().zip(0..).map(|(minor, n)| bill(n, "a", usd(*minor))).collect();
            let news = deduct(&mut purses, &bills.iter().collect::<Vec<_>>());
            let paid: i128 = news.iter().zip(&amounts)
                .filter(|(news, _)| news.outcome == Outcome::Succeed).map(|(_, minor)| minor).sum();
            prop_assert!(purses["a"].balance >= 0);
            prop_assert_eq!(purses["a"].balance, balance - paid);
        }
    }
}
