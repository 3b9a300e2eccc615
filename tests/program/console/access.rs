//! Sessions, scopes and CSRF protection.

use postrider_testkit::TestDb;
use postrider_web::auth::SessionSecret;
use serde_json::Value;

use super::Fixture;
use crate::program::{Serving, data_dir, run_with, stdout};

/// A token with its line of configuration.
async fn token(name: &str, scopes: &str) -> (String, String) {
    let made = run_with(&["token", "--name", name, "--scopes", scopes, "--json"]).await;
    let made: Value = serde_json::from_str(&stdout(&made)).unwrap();
    let entry = format!(
        "{{ name = {:?}, sha256 = {}, scopes = {} }}",
        name, made["sha256"], made["scopes"]
    );
    (made["token"].as_str().unwrap().to_owned(), entry)
}

async fn enter(fixture: &Fixture, token: &str) {
    fixture.page.fill("input[name=token]", token).await;
    fixture.page.follow("form.stack button").await;
}

#[tokio::test]
async fn session_is_valid_in_every_process_until_logout() {
    let (ann, ann_entry) = token("ann", "read,operate").await;
    let tokens = format!("server.tokens=[{ann_entry}]");
    let Some(fixture) = Fixture::with(&["--set", &tokens]).await else {
        return;
    };
    let page = &fixture.page;
    fixture.open("/dead?filter=service:orders").await;
    assert!(
        page.address().await.contains("/login"),
        "unauthenticated users are redirected to the login"
    );
    enter(&fixture, "pt_wrong").await;
    assert!(page.text().await.contains("This token is not valid"));
    enter(&fixture, &ann).await;
    assert!(
        page.address()
            .await
            .ends_with("/dead?filter=service:orders"),
        "the login redirects back"
    );
    assert!(page.text().await.contains("ann"));
    assert_eq!(
        page.eval("document.cookie").await,
        "",
        "scripts don't see the cookie"
    );

    let dir = data_dir();
    let url = fixture.db.url();
    let other = Serving::on(dir.path(), &["--database-url", &url, "--set", &tokens]).await;
    page.open(other.base()).await;
    assert!(
        page.text().await.contains("Overview"),
        "the session is valid in the other process"
    );
    page.follow(".who button").await;
    fixture.open("/").await;
    assert!(
        page.address().await.contains("/login"),
        "logged out in every process"
    );
    let kept: i64 = sqlx::query_scalar("select count(*) from console.session")
        .fetch_one(&fixture.db.pool())
        .await
        .unwrap();
    assert_eq!(kept, 0);
}

#[tokio::test]
async fn removing_a_token_ends_its_sessions() {
    let (ann, ann_entry) = token("ann", "read").await;
    let (_, bob_entry) = token("bob", "read").await;
    let both = format!("server.tokens=[{ann_entry}, {bob_entry}]");
    let Some(fixture) = Fixture::with(&["--set", &both]).await else {
        return;
    };
    fixture.open("/").await;
    enter(&fixture, &ann).await;
    assert!(fixture.page.text().await.contains("Overview"));
    let dir = data_dir();
    let url = fixture.db.url();
    let rest = format!("server.tokens=[{bob_entry}]");
    let other = Serving::on(dir.path(), &["--database-url", &url, "--set", &rest]).await;
    fixture.page.open(other.base()).await;
    assert!(fixture.page.address().await.contains("/login"));
}

#[tokio::test]
async fn reader_sees_everything_and_changes_nothing() {
    let (reader, reader_entry) = token("reader", "read").await;
    let (sender, sender_entry) = token("sender", "submit").await;
    let tokens = format!("server.tokens=[{reader_entry}, {sender_entry}]");
    let Some(fixture) = Fixture::with(&["--set", &tokens]).await else {
        return;
    };
    let page = &fixture.page;
    fixture.open("/").await;
    enter(&fixture, &reader).await;
    fixture.open("/dead").await;
    assert_eq!(
        page.eval("document.querySelectorAll('main button[name=perform]').length")
            .await,
        0
    );
    // An operator's form, sent by a reader.
    page.eval(
        "(() => { const f = document.createElement('form'); f.method = 'post'; f.action = '/dead/confirm'; f.id = 'forged';
          const add = (n, v) => { const i = document.createElement('input'); i.name = n; i.value = v; f.append(i); };
          add('form', document.querySelector('.who input[name=form]').value); add('perform', 'redrive all');
          const b = document.createElement('button'); b.textContent = 'go'; f.append(b); document.querySelector('main').prepend(f); })()",
    )
    .await;
    page.follow("#forged button").await;
    assert!(page.text().await.contains("This needs the scope operate"));
    fixture.open("/").await;
    page.follow(".who button").await;
    enter(&fixture, &sender).await;
    assert!(page.text().await.contains("This needs the scope read"));
}

/// An HTTP client that keeps cookies, as a browser does.
struct Client {
    http: reqwest::Client,
    base: String,
    cookie: String,
    mark: String,
}

impl Client {
    async fn of(serving: &Serving) -> Self {
        let none = reqwest::redirect::Policy::none();
        let http = reqwest::Client::builder().redirect(none).build().unwrap();
        let base = serving.base().to_owned();
        let answer = http.get(format!("{base}/dead")).send().await.unwrap();
        let policy = answer.headers()["content-security-policy"]
            .to_str()
            .unwrap();
        for word in [
            "default-src 'none'",
            "script-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
        ] {
            assert!(
                policy.contains(word) && !policy.contains("unsafe"),
                "{policy}"
            );
        }
        let cookie = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
        assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
        let cookie = cookie.split(';').next().unwrap().to_owned();
        let headers = [(reqwest::header::COOKIE, cookie.parse().unwrap())];
        let visit = SessionSecret::from_cookie(&headers.into_iter().collect(), "postrider_visit");
        Self {
            http,
            base,
            mark: visit.unwrap().form_token(),
            cookie,
        }
    }

    async fn post(
        &self,
        path: &str,
        mark: Option<&str>,
        headers: &[(&str, &str)],
    ) -> (u16, String) {
        let mut body = "perform=archive+all&filter=".to_owned();
        if let Some(mark) = mark {
            body = format!("{body}&form={mark}");
        }
        let mut request = self
            .http
            .post(format!("{}{path}", self.base))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        (status, answer.text().await.unwrap())
    }
}

#[tokio::test]
async fn form_without_a_csrf_token_or_from_another_origin_is_rejected() {
    let db = TestDb::new().await;
    let dir = data_dir();
    let serving = Serving::on(dir.path(), &["--database-url", &db.url()]).await;
    let client = Client::of(&serving).await;
    let cookie = [("cookie", client.cookie.as_str())];
    let honest = client.post("/dead/confirm", Some(&client.mark), &cookie);
    let (status, text) = honest.await;
    assert_eq!(status, 200, "the honest one: {text}");
    let foreign = [cookie[0], ("sec-fetch-site", "cross-site")];
    for path in [
        "/dead/confirm",
        "/dead/act",
        "/dead/stop",
        "/services/orders/act",
        "/services/payments/repair",
    ] {
        for (mark, headers) in [
            (None, &cookie[..]),
            (Some("guess"), &cookie[..]),
            (Some(client.mark.as_str()), &[][..]),
        ] {
            let (status, text) = client.post(path, mark, headers).await;
            assert_eq!(status, 403, "{path}: {text}");
            assert!(text.contains("form-expired"), "{path}: {text}");
        }
        let (status, text) = client.post(path, Some(&client.mark), &foreign).await;
        assert_eq!(status, 403, "{path}: {text}");
        assert!(text.contains("cross-origin"), "{path}: {text}");
    }
}

#[tokio::test]
async fn operator_session_can_act_on_jobs_and_reader_session_cannot() {
    let (ann, ann_entry) = token("ann", "submit,read,operate").await;
    let (reader, reader_entry) = token("reader", "read").await;
    let tokens = format!("server.tokens=[{ann_entry}, {reader_entry}]");
    let words = ["--set", &tokens, "--roles", "api,console"];
    let Some(fixture) = Fixture::with(&words).await else {
        return;
    };
    let page = &fixture.page;
    let account = serde_json::json!({ "account_id": "acc-1", "currency": "USD", "balance": "5" });
    let payment = serde_json::json!({ "account_id": "acc-1", "amount": "2", "currency": "USD" });
    for (path, body) in [
        ("/do/order", crate::orders::order("ok-1")),
        ("/wallet/accounts", account),
        ("/payments", payment),
    ] {
        let request = fixture.serving.post(path).bearer_auth(&ann).json(&body);
        let answer = request.send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {answer:?}");
    }
    let buttons = "document.querySelectorAll('main form button').length";
    fixture.open("/trace/ok-1").await;
    enter(&fixture, &reader).await;
    assert_eq!(page.eval(buttons).await, 0);
    page.follow(".who button").await;
    fixture.open("/trace/ok-1").await;
    enter(&fixture, &ann).await;
    page.follow("button[value=cancel]").await;
    page.fill("input[name=reason]", "the client rang").await;
    page.follow("#yes").await;
    let text = page.text().await;
    assert!(text.contains("will never be sent to the broker"), "{text}");
    fixture.open("/services/payments").await;
    page.follow("#repair").await;
    let asked = page.text().await;
    assert!(asked.contains("Reconcile stuck payments?"), "{asked}");
}

#[tokio::test]
async fn no_console_without_its_role() {
    let db = TestDb::new().await;
    let dir = data_dir();
    let words = ["--database-url", &db.url(), "--roles", "api"];
    let serving = Serving::on(dir.path(), &words).await;
    for path in ["/", "/dead", "/login", "/assets/console.css"] {
        let answer = serving
            .get(path)
            .header("accept", "text/html")
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 404, "{path}");
    }
}
