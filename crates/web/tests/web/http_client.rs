//! Calls to external servers, over real sockets.

use std::time::{Duration, SystemTime};

use axum::{Router, body::Body, response::Redirect, routing::get};
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use postrider_web::http_client::{
    BodyError, Endpoint, MAX_RETRY_AFTER, NoResponse, body, client, is_transient, join, retry_after,
};
use reqwest::Client;
use tokio::net::TcpListener;
use url::Url;

fn test_client() -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    client(Duration::from_millis(300)).unwrap()
}

async fn serve(routes: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    format!("http://{address}")
}

fn parse_retry_after(value: &str) -> Option<Duration> {
    let mut headers = HeaderMap::new();
    headers.insert(header::RETRY_AFTER, HeaderValue::from_str(value).unwrap());
    retry_after(&headers)
}

#[test]
fn retry_after_in_seconds_is_parsed() {
    assert_eq!(parse_retry_after("120"), Some(Duration::from_secs(120)));
    assert_eq!(parse_retry_after(" 7 "), Some(Duration::from_secs(7)));
}

#[test]
fn retry_after_as_a_date_is_parsed_in_all_three_formats() {
    let at = SystemTime::now() + Duration::from_secs(1_000);
    let wait = parse_retry_after(&httpdate::fmt_http_date(at)).unwrap();
    assert!((900..=1_000).contains(&wait.as_secs()), "{wait:?}");
    for date in ["Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"] {
        assert!(httpdate::parse_http_date(date).is_ok(), "{date}");
        assert_eq!(parse_retry_after(date), None, "{date} is over");
    }
}

#[test]
fn a_long_retry_after_is_capped() {
    for value in [
        "99999999",
        "99999999999999999999999999",
        "Tue, 31 Dec 2199 23:59:59 GMT",
    ] {
        assert_eq!(parse_retry_after(value), Some(MAX_RETRY_AFTER), "{value}");
    }
}

#[test]
fn no_or_zero_retry_after_is_none() {
    for value in [
        "0",
        "",
        "-5",
        "soon",
        "1.5",
        "Sun, 06 Nov 1994 08:49:37 GMT",
    ] {
        assert_eq!(parse_retry_after(value), None, "{value:?}");
    }
    assert_eq!(retry_after(&HeaderMap::new()), None);
}

#[test]
fn transient_statuses_are_recognised() {
    let transient = |status: u16| is_transient(StatusCode::from_u16(status).unwrap());
    for status in [408, 425, 429, 500, 502, 503, 504, 599] {
        assert!(transient(status), "{status}");
    }
    for status in [200, 301, 400, 401, 403, 404, 409, 422] {
        assert!(!transient(status), "{status}");
    }
}

#[test]
fn an_external_name_cannot_leave_its_path_segment() {
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
async fn a_failed_connection_cannot_have_arrived() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("http://user:secret@{free}/?key=secret");
    let lost = NoResponse::from(test_client().get(url).send().await.unwrap_err());
    assert_eq!((lost.code, lost.may_have_arrived), ("NETWORK_ERROR", false));
    assert!(!lost.message.contains("secret"), "{}", lost.message);
}

#[tokio::test]
async fn a_call_that_times_out_may_have_arrived() {
    let never = async || std::future::pending::<()>().await;
    let url = serve(Router::new().route("/", get(never))).await;
    let lost = NoResponse::from(test_client().get(url).send().await.unwrap_err());
    assert_eq!(
        (lost.code, lost.may_have_arrived),
        ("NETWORK_TIMEOUT", true)
    );
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let url = serve(Router::new().route("/", get(async || Redirect::temporary("/there")))).await;
    let answer = test_client().get(url).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::TEMPORARY_REDIRECT);
}

#[tokio::test]
async fn a_response_takes_bounded_memory_with_or_without_a_length() {
    let streamed = async || {
        let pieces = (0..3).map(|_| Ok::<_, std::io::Error>("12345"));
        Body::from_stream(stream::iter(pieces))
    };
    let routes = Router::new()
        .route("/announced", get(async || "123456789012345"))
        .route("/streamed", get(streamed));
    let url = serve(routes).await;
    for path in ["announced", "streamed"] {
        let ask = async || {
            test_client()
                .get(format!("{url}/{path}"))
                .send()
                .await
                .unwrap()
        };
        assert_eq!(body(ask().await, 15).await.unwrap().len(), 15, "{path}");
        let long = body(ask().await, 14).await;
        assert!(
            matches!(long, Err(BodyError::TooLarge { max: 14 })),
            "{long:?}"
        );
    }
}

#[tokio::test]
async fn a_call_with_a_truncated_response_may_have_arrived() {
    let broken = async || {
        let pieces = [Ok("{"), Err(std::io::ErrorKind::ConnectionReset)];
        Body::from_stream(stream::iter(
            pieces.map(|piece| piece.map_err(std::io::Error::from)),
        ))
    };
    let url = serve(Router::new().route("/", get(broken))).await;
    // The server may break the connection before or after the head of its answer is through.
    let lost = match test_client().get(url).send().await {
        Err(error) => NoResponse::from(error),
        Ok(answer) => match body(answer, 100).await {
            Err(BodyError::NoResponse(lost)) => lost,
            other => panic!("the body has no end, and yet: {other:?}"),
        },
    };
    assert!(lost.may_have_arrived);
}

#[tokio::test]
async fn an_endpoint_adds_its_token_and_extends_its_base_url() {
    let authorization = async |headers: HeaderMap| {
        let value = headers.get(header::AUTHORIZATION);
        value
            .map(|value| value.to_str().unwrap().to_owned())
            .unwrap_or_default()
    };
    let routes = Router::new()
        .route("/api", get(authorization))
        .route("/api/orders/7", get(authorization));
    let _ = rustls::crypto::ring::default_provider().install_default();
    let endpoint = Endpoint {
        url: format!("{}/api", serve(routes).await).parse().unwrap(),
        token: Some("secret".to_owned()),
        timeout: Duration::from_secs(5),
    };
    assert!(!format!("{endpoint:?}").contains("secret"));
    let client = endpoint.client().unwrap();
    assert!(!format!("{client:?}").contains("secret"));
    let order = client.request(Method::GET, &["orders", "7"]).unwrap();
    for request in [client.base_request(Method::GET), order] {
        let response = request.send().await.unwrap();
        assert_eq!(response.text().await.unwrap(), "Bearer secret");
    }
    assert!(client.request(Method::GET, &[".."]).is_none());
}
