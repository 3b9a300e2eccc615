use std::io::Write;
use std::sync::{Mutex, OnceLock};

use axum::Router;
use axum::routing::get as route_get;
use metrics_exporter_prometheus::PrometheusBuilder;
use postrider_web::{Problem, RequestId};
use tracing_subscriber::fmt::MakeWriter;

use crate::support::{bytes, call, default_middleware, get, problem, with};

/// The log of the whole test process; each test searches for its own request id.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Log;
    fn make_writer(&self) -> Log {
        Log
    }
}

fn start_log() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        tracing_subscriber::fmt()
            .json()
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(|| Log)
            .init();
    });
}

fn logged(request_id: &str) -> String {
    let log = String::from_utf8(LOG.lock().unwrap().clone()).unwrap();
    let lines = log.lines().filter(|line| line.contains(request_id));
    lines.collect::<Vec<_>>().join("\n")
}

fn router() -> Router {
    let echo = |id: RequestId| async move { id.to_string() };
    let inside = || async {
        tracing::info!("from inside");
    };
    let fail = || async { Err::<(), _>(Problem::internal("the real cause")) };
    let panic = || async {
        if true {
            panic!("the panic's words")
        }
    };
    default_middleware(
        Router::new()
            .route("/echo/{customer}", route_get(echo))
            .route("/inside", route_get(inside))
            .route("/fail", route_get(fail))
            .route("/panic", route_get(panic)),
    )
}

#[tokio::test]
async fn a_valid_request_id_is_kept_and_others_are_replaced() {
    let longest = "x".repeat(128);
    for id in ["abc-123", "a", &longest] {
        let response = call(&router(), with(get("/echo/1"), "x-request-id", id)).await;
        assert_eq!(response.headers()["x-request-id"], id);
        assert_eq!(bytes(response).await, id.as_bytes());
    }
    let too_long = "x".repeat(129);
    for id in ["", "two words", "tab\there", &too_long, "ä"] {
        let mut request = get("/echo/1");
        let value = http::HeaderValue::from_bytes(id.as_bytes()).unwrap();
        request.headers_mut().insert("x-request-id", value);
        let response = call(&router(), request).await;
        let given = response.headers()["x-request-id"]
            .to_str()
            .unwrap()
            .to_owned();
        assert_eq!(
            uuid::Uuid::parse_str(&given).unwrap().get_version_num(),
            7,
            "{id}"
        );
        assert_eq!(bytes(response).await, given.as_bytes());
    }
}

#[tokio::test]
async fn a_problem_contains_the_request_id() {
    let request = with(get("/nowhere"), "x-request-id", "find-me");
    assert_eq!(
        problem(call(&router(), request).await)
            .await
            .request_id
            .unwrap(),
        "find-me"
    );
}

#[tokio::test]
async fn the_log_has_the_route_and_no_secrets() {
    start_log();
    let request = get("/echo/customer-4711?token=query-secret");
    let request = with(request, "x-request-id", "log-route");
    let request = with(request, "authorization", "Bearer header-secret");
    call(&router(), request).await;
    let log = logged("log-route");
    for part in [
        "\"path\":\"/echo/{customer}\"",
        "\"status\":200",
        "\"method\":\"GET\"",
        "duration_ms",
        "\"caller\":\"local\"",
    ] {
        assert!(log.contains(part), "{part} in {log}");
    }
    for secret in ["4711", "query-secret", "header-secret"] {
        assert!(!log.contains(secret), "{secret} in {log}");
    }
}

#[tokio::test]
async fn log_lines_of_a_handler_have_the_request_id() {
    start_log();
    call(
        &router(),
        with(get("/inside"), "x-request-id", "log-inside"),
    )
    .await;
    assert!(logged("log-inside").contains("from inside"));
}

#[tokio::test]
async fn the_cause_of_an_internal_error_is_logged_and_not_returned() {
    start_log();
    for (path, id, cause) in [
        ("/fail", "log-fault", "the real cause"),
        ("/panic", "log-panic", "the panic's words"),
    ] {
        let response = call(&router(), with(get(path), "x-request-id", id)).await;
        assert_eq!(response.status(), 500);
        let details = problem(response).await;
        assert_eq!(details.code, "internal-error");
        assert!(!serde_json::to_string(&details).unwrap().contains(cause));
        let log = logged(id);
        assert!(
            log.contains(cause) && log.contains("\"status\":500"),
            "{log}"
        );
    }
}

#[tokio::test]
async fn a_client_that_disconnects_is_recorded() {
    start_log();
    let (entered, mut wait) = tokio::sync::mpsc::channel::<()>(1);
    let route = route_get(move || async move {
        entered.send(()).await.unwrap();
        std::future::pending::<()>().await;
    });
    let router = default_middleware(Router::new().route("/wait", route));
    let request = with(get("/wait"), "x-request-id", "log-gone");
    let task = tokio::spawn(async move { call(&router, request).await });
    wait.recv().await.unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    assert!(logged("log-gone").contains("\"status\":499"));
}

#[test]
fn requests_are_counted_by_route_and_never_by_url() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let router = router();
            for path in ["/echo/1", "/echo/2", "/nowhere/1", "/nowhere/2"] {
                call(&router, get(path)).await;
            }
            let odd = http::Method::from_bytes(b"BREW").unwrap();
            call(&router, crate::support::request(odd, "/echo/1", "")).await;
        });
    });
    let text = handle.render();
    for line in [
        "# HELP http_requests_total",
        "# HELP http_request_duration_seconds",
        r#"http_requests_total{method="GET",path="/echo/{customer}",status="200"} 2"#,
        r#"http_requests_total{method="GET",path="unmatched",status="404"} 2"#,
        r#"http_requests_total{method="other",path="/echo/{customer}",status="405"} 1"#,
        r#"http_request_duration_seconds_count{method="GET",path="/echo/{customer}"} 2"#,
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
}
