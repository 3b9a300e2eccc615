//! Calls to other people's servers, against real sockets.

use std::time::{Duration, SystemTime};

use axum::{Router, body::Body, response::Redirect, routing::get};
use futures_util::stream;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use postrider_web::http_client::{
    BodyError, MAX_RETRY_AFTER, NoResponse, body, client, is_transient, join, retry_after,
};
use reqwest::Client;
use tokio::net::TcpListener;
use url::Url;

fn quick() -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    client(Duration::from_millis(300)).unwrap()
}

async fn serve(routes: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    format!("http://{address}")
}

fn asked_to_wait(value: &str) -> Option<Duration> {
    let mut headers = HeaderMap::new();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_str(value).unwrap());
    retry_after(&headers)
}

#[test]
fn a_wait_in_seconds_is_understood() {
    assert_eq!(asked_to_wait("120"), Some(Duration::from_secs(120)));
    assert_eq!(asked_to_wait(" 7 "), Some(Duration::from_secs(7)));
}

#[test]
fn a_wait_until_a_date_is_understood_in_all_three_spellings() {
    let at = SystemTime::now() + Duration::from_secs(1_000);
    let wait = asked_to_wait(&httpdate::fmt_http_date(at)).unwrap();
    assert!((900..=1_000).contains(&wait.as_secs()), "{wait:?}");
    for date in ["Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
        assert!(httpdate::parse_http_date(date).is_ok(), "{date}");
        assert_eq!(asked_to_wait(date), None, "{date} is over");
    }
}

#[test]
fn a_wait_without_end_is_cut() {
    for value in [
        "99999999",
        "99999999999999999999999999",
        "Tue, 31 Dec 2199 23:59:59 GMT",
    ] {
        assert_eq!(asked_to_wait(value), Some(MAX_RETRY_AFTER), "{value}");
    }
}

#[test]
fn what_asks_for_no_wait_is_none() {
    for value in [
        "0",
        "",
        "-5",
        "soon",
        "1.5",
        "Sun, 06 Nov 1994 08:49:37 GMT",
    ] {
        assert_eq!(asked_to_wait(value), None, "{value:?}");
    }
    assert_eq!(retry_after(&HeaderMap::new()), None);
}

#[test]
fn the_status_says_whether_to_come_again() {
    let transient = |status: u16| is_transient(StatusCode::from_u16(status).unwrap());
    for status in [408, 425, 429, 500, 502, 503, 504, 599] {
        assert!(transient(status), "{status}");
    }
    for status in [200, 301, 400, 401, 403, 404, 409, 422] {
        assert!(!transient(status), "{status}");
    }
}

#[test]
fn a_name_from_outside_can_not_leave_its_place() {
    let base = Url::parse("http://broker/api/?tenant=7").unwrap();
    let of = |name: &str| join(&base, &["orders", name]).map(String::from);
    let at = |path: &str| Some(format!("http://broker/api/orders/{path}?tenant=7"));
    assert_eq!(of("k-1"), at("k-1"));
    assert_eq!(of("../x"), at("..%2Fx"));
    assert_eq!(of("a/b?c#d"), at("a%2Fb%3Fc%23d"));
    assert_eq!(of("%2e"), at("%252e"));
    for nowhere in ["", ".", ".."] {
        assert_eq!(of(nowhere), None, "{nowhere:?}");
    }
}

#[tokio::test]
async fn without_a_connection_nothing_can_have_arrived() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("http://user:secret@{free}/?key=secret");
    let lost = NoResponse::from(quick().get(url).send().await.unwrap_err());
    assert_eq!((lost.code, lost.may_have_arrived), ("NETWORK_ERROR", false));
    assert!(!lost.message.contains("secret"), "{}", lost.message);
}

#[tokio::test]
async fn a_call_that_takes_too_long_ends_and_may_have_arrived() {
    let never = async || std::future::pending::<()>().await;
    let url = serve(Router::new().route("/", get(never))).await;
    let lost = NoResponse::from(quick().get(url).send().await.unwrap_err());
    assert_eq!(
        (lost.code, lost.may_have_arrived),
        ("NETWORK_TIMEOUT", true)
    );
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let url = serve(Router::new().route("/", get(async || Redirect::temporary("/there")))).await;
    let answer = quick().get(url).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::TEMPORARY_REDIRECT);
}

#[tokio::test]
async fn an_answer_takes_bounded_memory_whether_it_announces_its_length_or_not() {
    let streamed = async || {
        let pieces = (0..3).map(|_| Ok::<_, std::io::Error>("12345"));
        Body::from_stream(stream::iter(pieces))
    };
    let routes = Router::new()
        .route("/announced", get(async || "123456789012345"))
        .route("/streamed", get(streamed));
    let url = serve(routes).await;
    for path in ["announced", "streamed"] {
        let ask = async || quick().get(format!("{url}/{path}")).send().await.unwrap();
        assert_eq!(body(ask().await, 15).await.unwrap().len(), 15, "{path}");
        let long = body(ask().await, 14).await;
        assert!(
            matches!(long, Err(BodyError::TooLarge { max: 14 })),
            "{long:?}"
        );
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_lost_and_may_have_arrived() {
    let broken = async || {
        let pieces = [Ok("{"), Err(std::io::ErrorKind::ConnectionReset)];
        Body::from_stream(stream::iter(
            pieces.map(|piece| piece.map_err(std::io::Error::from)),
        ))
    };
    let url = serve(Router::new().route("/", get(broken))).await;
    // The server may break the connection before or after the head of its answer is through.
    let lost = match quick().get(url).send().await {
        Err(error) => NoResponse::from(error),
        Ok(answer) => match body(answer, 100).await {
            Err(BodyError::NoResponse(lost)) => lost,
            other => panic!("the body has no end, and yet: {other:?}"),
        },
    };
    assert!(lost.may_have_arrived);
}
