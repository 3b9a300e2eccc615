//! A real browser for tests: headless Chromium, driven by its own debugging protocol over a pipe.
//!
//! The promise: [`page`] opens a page of its own (cookies and all) in the one browser of the test process; whatever goes
//! wrong in it (an exception, an error on its console, a breach of its content security policy, a request that fails) is
//! told by [`Page::troubles`]; the browser ends with the test process, for its pipe does.
//!
//! A browser that is not installed is a printed skip; with `CI` set it is a failure. `scripts/setup` installs it.
//! There is no driver in between and no crate: the protocol is JSON between two zero bytes.

mod pipe;

use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::wait::within;
use pipe::Pipe;

/// Pages of a debug build on a busy machine take their time.
const PATIENCE: Duration = Duration::from_secs(90);

/// A page in a window of its own.
#[derive(Debug)]
pub struct Page {
    pipe: &'static Pipe,
    session: String,
}

/// How large a window is.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
    /// Is it a phone's?
    pub phone: bool,
}

/// A desk's.
pub const DESK: Window = Window {
    width: 1280,
    height: 900,
    phone: false,
};

/// A phone's.
pub const PHONE: Window = Window {
    width: 360,
    height: 740,
    phone: true,
};

/// A new page with no past; none if no browser is installed.
pub async fn page() -> Option<Page> {
    let pipe = pipe::shared()?;
    let context = pipe
        .call(None, "Target.createBrowserContext", json!({}))
        .await;
    let target = json!({ "url": "about:blank", "browserContextId": context["browserContextId"] });
    let target = pipe.call(None, "Target.createTarget", target).await;
    let attach = json!({ "targetId": target["targetId"], "flatten": true });
    let session = pipe.call(None, "Target.attachToTarget", attach).await;
    let session = session["sessionId"].as_str().expect("a session").to_owned();
    let page = Page { pipe, session };
    for domain in ["Page", "Runtime", "Log", "Network"] {
        page.call(&format!("{domain}.enable"), json!({})).await;
    }
    page.window(DESK).await;
    Some(page)
}

impl Page {
    async fn call(&self, method: &str, parameters: Value) -> Value {
        self.pipe
            .call(Some(&self.session), method, parameters)
            .await
    }

    /// Opens an address and waits until it is loaded.
    pub async fn open(&self, url: &str) {
        self.and_load(async || {
            let answer = self.call("Page.navigate", json!({ "url": url })).await;
            assert!(answer["errorText"].is_null(), "{url}: {answer}");
        })
        .await;
    }

    /// Does something that leads to another page, and waits until that is loaded.
    async fn and_load(&self, deed: impl AsyncFnOnce()) {
        let before = self.loads();
        deed().await;
        within(PATIENCE, "the page is loaded", async || {
            (self.loads() > before).then_some(())
        })
        .await;
    }

    fn loads(&self) -> usize {
        let loaded = |event: &&Value| event["method"] == "Page.loadEventFired";
        self.pipe
            .events(&self.session)
            .iter()
            .filter(loaded)
            .count()
    }

    /// Evaluates an expression in the page; its value must fit into JSON.
    pub async fn eval(&self, expression: &str) -> Value {
        let wanted =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", wanted).await;
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {}",
            answer["exceptionDetails"]
        );
        answer["result"]["value"].clone()
    }

    /// Its visible text.
    pub async fn text(&self) -> String {
        let text = self.eval("document.body.innerText").await;
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Where it is.
    pub async fn address(&self) -> String {
        let address = self.eval("location.href").await;
        address.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an expression is true in the page.
    pub async fn until(&self, expression: &str) {
        within(PATIENCE, expression, async || {
            let value = self.eval(expression).await;
            if value == Value::Bool(true) {
                Ok(())
            } else {
                Err((value, self.text().await))
            }
        })
        .await;
    }

    /// Presses the mouse on the first element that fits, where a person would.
    pub async fn click(&self, selector: &str) {
        let selector = Value::from(selector);
        let place = self
            .eval(&format!(
                "(() => {{ const e = document.querySelector({selector}); if (!e) return null; e.scrollIntoView({{ block: 'center' }});
                 const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()"
            ))
            .await;
        assert!(
            place.is_array(),
            "nothing fits {selector} on {}",
            self.text().await
        );
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event).await;
        }
    }

    /// Clicks on what leads to another page, and waits until that is loaded.
    pub async fn follow(&self, selector: &str) {
        self.and_load(async || self.click(selector).await).await;
    }

    /// Types into a field, after what is in it is gone.
    pub async fn fill(&self, selector: &str, text: &str) {
        self.click(selector).await;
        self.eval(&format!(
            "document.querySelector({}).select()",
            Value::from(selector)
        ))
        .await;
        self.call("Input.insertText", json!({ "text": text })).await;
    }

    /// How large the window is.
    pub async fn window(&self, window: Window) {
        let metrics = json!({ "width": window.width, "height": window.height, "deviceScaleFactor": 1, "mobile": window.phone });
        self.call("Emulation.setDeviceMetricsOverride", metrics)
            .await;
    }

    /// Whether whoever looks prefers dark pages.
    pub async fn dark(&self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": value }] });
        self.call("Emulation.setEmulatedMedia", features).await;
    }

    /// Whether scripts of the page run.
    pub async fn scripts(&self, run: bool) {
        self.call(
            "Emulation.setScriptExecutionDisabled",
            json!({ "value": !run }),
        )
        .await;
    }

    /// What it looks like now, as a PNG: the window, or the whole page.
    pub async fn picture(&self, whole: bool) -> Vec<u8> {
        let wanted =
            json!({ "format": "png", "captureBeyondViewport": whole, "optimizeForSpeed": false });
        let wanted = if whole {
            let metrics = self.call("Page.getLayoutMetrics", json!({})).await;
            let size = &metrics["cssContentSize"];
            let clip = json!({ "x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1 });
            json!({ "format": "png", "captureBeyondViewport": true, "clip": clip })
        } else {
            wanted
        };
        let answer = self.call("Page.captureScreenshot", wanted).await;
        let data = answer["data"].as_str().expect("a picture");
        base64::engine::general_purpose::STANDARD
            .decode(data)
            .expect("base64")
    }

    /// Everything that went wrong in the page since it was opened.
    pub fn troubles(&self) -> Vec<String> {
        let events = self.pipe.events(&self.session);
        events.iter().filter_map(trouble).collect()
    }
}

fn trouble(event: &Value) -> Option<String> {
    let of = &event["params"];
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(of["exceptionDetails"].to_string()),
        "Runtime.consoleAPICalled" if of["type"] == "error" || of["type"] == "warning" => {
            Some(of["args"].to_string())
        }
        // Breaches of the policy come here, too.
        "Log.entryAdded"
            if of["entry"]["level"] == "error" || of["entry"]["level"] == "warning" =>
        {
            Some(of["entry"].to_string())
        }
        "Page.javascriptDialogOpening" => Some(format!("a dialog: {}", of["message"])),
        _ => None,
    }
}
