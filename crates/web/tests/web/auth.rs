use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::routing::{get as route_get, post};
use http::{HeaderMap, Request};
use postrider_web::auth::{Authentication, NewToken, TokenError};
use postrider_web::{
    Caller, MiddlewareOptions, Scope, Scopes, Token, Tokens, require, with_middleware,
};

use crate::support::{bytes, call, get, post_json, problem, with};

struct Fixture {
    router: Router,
    reader: NewToken,
    sender: NewToken,
}

fn token(name: &str, new: &NewToken, scopes: &[Scope]) -> Token {
    Token::new(name, &new.sha256(), scopes.iter().copied().collect()).unwrap()
}

fn fixture() -> Fixture {
    let (reader, sender) = (NewToken::generate(), NewToken::generate());
    let tokens = Tokens::new(vec![
        token("reader", &reader, &[Scope::Read]),
        token("sender", &sender, &[Scope::Submit, Scope::Read]),
    ]);
    let named = |caller: Caller| async move { caller.name().to_owned() };
    let router = Router::new()
        .route("/submit", post(named).route_layer(require(Scope::Submit)))
        .merge(
            Router::new()
                .route("/read", route_get(named))
                .route_layer(require(Scope::Read)),
        )
        .route("/operate", post(named).route_layer(require(Scope::Operate)))
        .route("/forgotten", route_get(|| async { "no scope asked" }))
        .route("/healthz", route_get(|| async { "well" }));
    let options = MiddlewareOptions {
        tokens: Arc::new(tokens.unwrap()),
        open: vec!["/healthz".to_owned()],
        ..MiddlewareOptions::default()
    };
    Fixture {
        router: with_middleware(router, options),
        reader,
        sender,
    }
}

fn signed(request: Request<Body>, token: &NewToken) -> Request<Body> {
    with(
        request,
        "authorization",
        &format!("Bearer {}", token.secret()),
    )
}

#[tokio::test]
async fn a_token_allows_only_its_scopes() {
    let fixture = fixture();
    let allowed = call(&fixture.router, signed(get("/read"), &fixture.reader)).await;
    assert_eq!(allowed.status(), 200);
    assert_eq!(bytes(allowed).await, b"reader");
    let allowed = call(
        &fixture.router,
        signed(post_json("/submit", ""), &fixture.sender),
    )
    .await;
    assert_eq!(bytes(allowed).await, b"sender");

    let refused = call(
        &fixture.router,
        signed(post_json("/submit", ""), &fixture.reader),
    )
    .await;
    let challenge = refused.headers()["www-authenticate"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(challenge.contains("insufficient_scope") && challenge.contains("submit"));
    let details = problem(refused).await;
    assert_eq!((details.status, details.code.as_str()), (403, "forbidden"));
    assert_eq!(details.more["required_scope"], "submit");
    assert!(details.detail.contains("`submit`"), "{}", details.detail);

    let refused = call(
        &fixture.router,
        signed(post_json("/operate", ""), &fixture.sender),
    )
    .await;
    assert_eq!(refused.status(), 403);
}

#[tokio::test]
async fn unauthenticated_requests_are_rejected_on_routes_without_a_scope() {
    let fixture = fixture();
    for path in ["/read", "/forgotten"] {
        let refused = call(&fixture.router, get(path)).await;
        assert_eq!(
            refused.headers()["www-authenticate"],
            "Bearer realm=\"postrider\""
        );
        assert_eq!(problem(refused).await.code, "unauthorized");
        let unknown = NewToken::generate();
        let refused = call(&fixture.router, signed(get(path), &unknown)).await;
        assert!(
            refused.headers()["www-authenticate"]
                .to_str()
                .unwrap()
                .contains("invalid_token")
        );
        assert_eq!(problem(refused).await.status, 401);
    }
    assert_eq!(call(&fixture.router, get("/healthz")).await.status(), 200);
    assert_eq!(call(&fixture.router, get("/nowhere")).await.status(), 404);
}

#[tokio::test]
async fn a_malformed_authorization_header_is_rejected() {
    let fixture = fixture();
    let secret = fixture.reader.secret();
    for value in [
        secret.to_owned(),
        format!("Basic {secret}"),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        format!("Bearer {secret}x"),
        format!("Bearer {}", &secret[..secret.len() - 1]),
        format!("Bearer {}", fixture.reader.sha256()),
        format!("Bearer {}", "x".repeat(4000)),
    ] {
        let refused = call(&fixture.router, with(get("/read"), "authorization", &value)).await;
        assert_eq!(problem(refused).await.status, 401, "{value}");
    }
    let lower = with(get("/read"), "authorization", &format!("bearer {secret}"));
    assert_eq!(call(&fixture.router, lower).await.status(), 200);
    let mut twice = signed(get("/read"), &fixture.reader);
    let value = twice.headers()["authorization"].clone();
    twice.headers_mut().append("authorization", value);
    assert_eq!(call(&fixture.router, twice).await.status(), 401);
}

#[tokio::test]
async fn without_tokens_every_local_caller_has_every_scope() {
    let named = |caller: Caller| async move { format!("{} {}", caller.name(), caller.scopes()) };
    let router = Router::new().route("/operate", post(named).route_layer(require(Scope::Operate)));
    let response = call(
        &with_middleware(router, MiddlewareOptions::default()),
        post_json("/operate", ""),
    )
    .await;
    assert_eq!(bytes(response).await, b"local submit read operate internal");
}

#[tokio::test]
async fn a_required_scope_without_the_middleware_rejects_everything() {
    let router = Router::new().route(
        "/x",
        route_get(|| async {}).route_layer(require(Scope::Read)),
    );
    assert_eq!(call(&router, get("/x")).await.status(), 401);
}

#[tokio::test]
async fn a_caller_authenticated_by_an_outer_layer_needs_no_token() {
    let fixture = fixture();
    let mut introduced = get("/read");
    let scopes: Scopes = [Scope::Read].into_iter().collect();
    introduced
        .extensions_mut()
        .insert(Caller::new("console", scopes));
    assert_eq!(
        bytes(call(&fixture.router, introduced).await).await,
        b"console"
    );

    let mut both = signed(get("/read"), &NewToken::generate());
    both.extensions_mut().insert(Caller::new("console", scopes));
    assert_eq!(
        call(&fixture.router, both).await.status(),
        401,
        "a wrong token is never overlooked"
    );
}

#[test]
fn a_new_token_is_random_and_only_its_hash_is_stored() {
    let (one, other) = (NewToken::generate(), NewToken::generate());
    assert_ne!(one.secret(), other.secret());
    assert!(one.secret().starts_with("pt_") && one.secret().len() == 3 + 43);
    assert!(!format!("{one:?}").contains(one.secret()));
    let token = token("a", &one, &[Scope::Read]);
    assert!(!format!("{token:?}").contains(&one.sha256()));
    let tokens = Tokens::new(vec![token]).unwrap();
    let mut headers = HeaderMap::new();
    assert_eq!(tokens.authenticate(&headers), Authentication::Missing);
    headers.insert(
        "authorization",
        format!("Bearer {}", one.secret()).parse().unwrap(),
    );
    assert!(
        matches!(tokens.authenticate(&headers), Authentication::Known(caller) if caller.name() == "a")
    );
}

#[test]
fn invalid_token_settings_are_rejected_with_a_reason() {
    let read: Scopes = [Scope::Read].into_iter().collect();
    let new = NewToken::generate();
    let hash = new.sha256();
    assert_eq!(Token::new(" ", &hash, read).unwrap_err(), TokenError::Name);
    assert_eq!(
        Token::new("a\nb", &hash, read).unwrap_err(),
        TokenError::Name
    );
    assert_eq!(
        Token::new("a", new.secret(), read).unwrap_err(),
        TokenError::Hash("a".into())
    );
    assert_eq!(
        Token::new("a", &hash, Scopes::default()).unwrap_err(),
        TokenError::NoScopes("a".into())
    );
    let pair = |one: &str, other: &str, second: &str| {
        let tokens = [(one, hash.as_str()), (other, second)];
        Tokens::new(
            tokens
                .map(|(name, hash)| Token::new(name, hash, read).unwrap())
                .to_vec(),
        )
    };
    let other = NewToken::generate().sha256();
    assert_eq!(
        pair("a", "a", &other).unwrap_err(),
        TokenError::SameName("a".into())
    );
    assert_eq!(
        pair("a", "b", &hash).unwrap_err(),
        TokenError::SameHash("a".into(), "b".into())
    );
    assert!(pair("a", "b", &other).is_ok());
}

#[test]
fn tokens_are_read_from_configuration() {
    let hash = NewToken::generate().sha256();
    let good = serde_json::json!({"name": "ci", "sha256": hash, "scopes": ["submit", "read"]});
    let token: Token = serde_json::from_value(good).unwrap();
    assert_eq!(
        (token.name(), token.scopes().to_string().as_str()),
        ("ci", "submit read")
    );
    for bad in [
        serde_json::json!({"name": "ci", "sha256": hash, "scopes": ["admin"]}),
        serde_json::json!({"name": "ci", "sha256": "abc", "scopes": ["read"]}),
        serde_json::json!({"name": "ci", "sha256": hash, "scopes": ["read"], "token": "x"}),
    ] {
        assert!(serde_json::from_value::<Token>(bad).is_err());
    }
    assert!("read".parse::<Scope>().is_ok());
    assert!(
        "admin"
            .parse::<Scope>()
            .unwrap_err()
            .to_string()
            .contains("operate")
    );
}
