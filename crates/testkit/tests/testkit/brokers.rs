//! Brokers for tests: they answer, come back with their data's place, and leave nothing behind.

use std::net::TcpStream;

use postrider_testkit::servers::Kind;

async fn comes_and_goes(kind: Kind) {
    let Some(server) = kind.alone().await else {
        return;
    };
    let address = server.url().rsplit('@').next().unwrap();
    let address = address.trim_start_matches("nats://");
    let address = address.trim_start_matches("kafka://");
    let address = address.split('/').next().unwrap().to_owned();
    assert!(TcpStream::connect(&address).is_ok(), "{address}");
    server.stop().await;
    assert!(TcpStream::connect(&address).is_err());
    server.start().await;
    assert!(TcpStream::connect(&address).is_ok());
    server.kill().await;
    assert!(TcpStream::connect(&address).is_err());
    server.start().await;
    assert!(TcpStream::connect(&address).is_ok());
}

#[tokio::test]
async fn nats_comes_and_goes() {
    comes_and_goes(Kind::Nats).await;
}

#[tokio::test]
async fn rabbitmq_comes_and_goes() {
    comes_and_goes(Kind::Rabbitmq).await;
}

#[tokio::test]
async fn kafka_comes_and_goes() {
    comes_and_goes(Kind::Kafka).await;
}
