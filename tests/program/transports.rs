//! The same program over every transport: only one configuration key differs.

use postrider_testkit::builders::Serve;
use postrider_testkit::servers::Kind;

use crate::program::{BINARY, Serving, assert_payment_succeeds, data_dir};

async fn payments_work_over(kind: Kind) {
    let Some(broker) = kind.shared().await else {
        return;
    };
    let dir = data_dir();
    let mut command = Serve::new(BINARY, dir.path()).command();
    command.env("POSTRIDER_TRANSPORT__KIND", kind.name());
    // The servers of tests are not at their usual ports.
    command.env("POSTRIDER_TRANSPORT__URL", broker.url());
    let serving = Serving::start(&command).await;
    assert_payment_succeeds(serving.base()).await;
    let metrics = serving.get("/metrics").send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let published = format!("transport=\"{}\"", kind.name());
    assert!(metrics.contains(&published), "{metrics}");
    assert!(metrics.contains("postrider_taken_in_total"), "{metrics}");
    assert!(serving.terminate().await.success());
}

#[tokio::test]
async fn payments_work_over_nats() {
    payments_work_over(Kind::Nats).await;
}

#[tokio::test]
async fn payments_work_over_rabbitmq() {
    payments_work_over(Kind::Rabbitmq).await;
}

#[tokio::test]
async fn payments_work_over_kafka() {
    payments_work_over(Kind::Kafka).await;
}

#[tokio::test]
async fn invalid_broker_address_is_rejected_before_anything_starts() {
    let mut command = crate::program::postrider(&["serve"]);
    command.env("POSTRIDER_TRANSPORT__KIND", "kafka");
    command.env("POSTRIDER_TRANSPORT__URL", "amqp://me:s3cret@host");
    let refused = crate::program::run(command).await;
    let said = crate::program::stderr(&refused);
    assert!(
        said.contains("transport.url") && said.contains("kafka://"),
        "{said}"
    );
    assert!(!said.contains("s3cret"), "{said}");
}
