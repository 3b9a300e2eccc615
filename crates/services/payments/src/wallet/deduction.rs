//! Decides deductions. Pure: `store` locks the accounts before and writes the results after.

use std::{borrow::Cow, collections::HashMap};

use postrider::{
    failure::{Category, Failure},
    transport::Message,
};
use uuid::Uuid;

use crate::model::{Currency, DeclineReason, Money, Outcome, PaymentMessage, TraceContext};

/// A payment to deduct, read from its message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    /// The payment's uuid.
    pub uuid: Uuid,
    /// The id of its message.
    pub message_id: Uuid,
    /// The account to deduct from.
    pub account_id: String,
    /// The amount.
    pub money: Money,
    /// The trace context.
    pub trace: Option<TraceContext>,
}

impl Charge {
    /// Reads a message. An unreadable one is a permanent failure.
    pub fn read(message: &Message) -> Result<Self, Failure> {
        let payment: PaymentMessage = message.read()?;
        let money = Money::from_stored(&payment.amount, &payment.currency)
            .filter(|money| money.minor > 0)
            .ok_or_else(|| {
                let text = format!(
                    "{:?} {:?} is not an amount",
                    payment.amount, payment.currency
                );
                Failure::with_category("UNREADABLE_PAYLOAD", Category::Data, text)
            })?;
        Ok(Self {
            uuid: payment.uuid,
            message_id: message.id.uuid(),
            account_id: payment.account_id,
            money,
            trace: TraceContext::from_message(message.trace.as_deref(), message.headers.as_deref()),
        })
    }
}

/// An account while its row is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockedAccount {
    /// The balance in minor units.
    pub balance: i128,
    /// The currency.
    pub currency: Currency,
}

/// The wallet's result of a payment, to be reported by a callback.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaymentResult {
    /// The payment's uuid.
    pub uuid: Uuid,
    /// The result.
    pub outcome: Outcome,
    /// Why the payment failed.
    pub reason: Option<Cow<'static, str>>,
    /// The trace context.
    pub trace: Option<TraceContext>,
}

/// Deducts each charge in turn from locked accounts; later charges find what earlier ones left.
pub fn deduct(
    accounts: &mut HashMap<String, LockedAccount>,
    charges: &[&Charge],
) -> Vec<PaymentResult> {
    charges
        .iter()
        .map(|charge| {
            let declined = match accounts.get_mut(&charge.account_id) {
                None => Some(DeclineReason::UnknownAccount),
                Some(account) if account.currency != charge.money.currency => {
                    Some(DeclineReason::CurrencyMismatch)
                }
                Some(account) if account.balance < charge.money.minor => {
                    Some(DeclineReason::InsufficientFunds)
                }
                Some(account) => {
                    account.balance -= charge.money.minor;
                    None
                }
            };
            PaymentResult {
                uuid: charge.uuid,
                outcome: declined.map_or(Outcome::Succeed, |_| Outcome::Failed),
                reason: declined.map(|reason| reason.as_str().into()),
                trace: charge.trace.clone(),
            }
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
            currency: Currency::new("USD").unwrap(),
        }
    }

    fn charge(n: u128, account_id: &str, money: Money) -> Charge {
        Charge {
            uuid: Uuid::from_u128(n),
            message_id: Uuid::from_u128(n),
            account_id: account_id.to_owned(),
            money,
            trace: None,
        }
    }

    #[test]
    fn a_declined_charge_leaves_the_balance_for_the_next_one() {
        let account = LockedAccount {
            balance: 100,
            currency: usd(0).currency,
        };
        let mut accounts = HashMap::from([("a".to_owned(), account)]);
        let yen = Money {
            minor: 1,
            currency: Currency::new("JPY").unwrap(),
        };
        let charges = [
            charge(1, "a", usd(70)),
            charge(2, "a", usd(70)),
            charge(3, "a", yen),
            charge(4, "b", usd(1)),
            charge(5, "a", usd(30)),
        ];
        let results = deduct(&mut accounts, &charges.iter().collect::<Vec<_>>());
        let reasons: Vec<Option<&str>> = results
            .iter()
            .map(|result| result.reason.as_deref())
            .collect();
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
        assert_eq!(accounts["a"].balance, 0);
    }

    proptest! {
        #[test]
        fn no_balance_falls_below_zero_and_deductions_equal_successful_charges(
            balance in 0_i128..10_000, amounts in proptest::collection::vec(1_i128..3_000, 0..30)
        ) {
            let account = LockedAccount { balance, currency: usd(0).currency };
            let mut accounts = HashMap::from([("a".to_owned(), account)]);
            let charges: Vec<Charge> = amounts.iter().zip(0..).map(|(minor, n)| charge(n, "a", usd(*minor))).collect();
            let results = deduct(&mut accounts, &charges.iter().collect::<Vec<_>>());
            let paid: i128 = results.iter().zip(&amounts)
                .filter(|(result, _)| result.outcome == Outcome::Succeed).map(|(_, minor)| minor).sum();
            prop_assert!(accounts["a"].balance >= 0);
            prop_assert_eq!(accounts["a"].balance, balance - paid);
        }
    }
}
