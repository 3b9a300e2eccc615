//! A real browser for tests: headless Chromium, driven by its own debugging protocol over a pipe.
//!
//! Promise: [`page`] opens a page with its own cookies in the test process's browser; [`Page::errors`] returns every
//! exception, console error, content security policy violation and failed request; the browser ends with the test
//! process, as its pipe closes.
//!
//! If no browser is installed, tests print a skip; with `CI` set they fail. `scripts/setup` installs one.
//! No driver and no crate are needed: the protocol is JSON separated by zero bytes.

mod pipe;

use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::wait::within;
use pipe::Pipe;

/// Pages of a debug build on a busy machine are slow.
const CALL_TIMEOUT: Duration = Duration::from_secs(90);

/// A page with a window and cookies of its own.
#[derive(Debug)]
pub struct Page {
    pipe: &'static Pipe,
    session: String,
}

/// Size of a window.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Whether it is a phone.
    pub phone: bool,
}

/// A desktop window.
pub const DESKTOP: Window = Window {
    width: 1280,
    height: 900,
    phone: false,
};

/// A phone's window.
pub const PHONE: Window = Window {
    width: 360,
    height: 740,
    phone: true,
};

/// A new page without cookies or history; `None` if no browser is installed.
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
    page.window(DESKTOP).await;
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

    /// Runs an action that navigates, and waits until the new page is loaded.
    async fn and_load(&self, action: impl AsyncFnOnce()) {
        let before = self.loads();
        action().await;
        within(CALL_TIMEOUT, "the page is loaded", async || {
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

    /// Visible text.
    pub async fn text(&self) -> String {
        let text = self.eval("document.body.innerText").await;
        text.as_str().unwrap_or_default().to_owned()
    }

    /// Current URL.
    pub async fn address(&self) -> String {
        let address = self.eval("location.href").await;
        address.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an expression is true in the page.
    pub async fn until(&self, expression: &str) {
        within(CALL_TIMEOUT, expression, async || {
            let value = self.eval(expression).await;
            if value == Value::Bool(true) {
                Ok(())
            } else {
                Err((value, self.text().await))
            }
        })
        .await;
    }

    /// Clicks on the center of the first matching element.
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

    /// Clicks on a link or button that navigates, and waits until the new page is loaded.
    pub async fn follow(&self, selector: &str) {
        self.and_load(async || self.click(selector).await).await;
    }

    /// Replaces the content of a field.
    pub async fn fill(&self, selector: &str, text: &str) {
        self.click(selector).await;
        self.eval(&format!(
            "document.querySelector({}).select()",
            Value::from(selector)
        ))
        .await;
        self.call("Input.insertText", json!({ "text": text })).await;
    }

    /// Sets the window size.
    pub async fn window(&self, window: Window) {
        let metrics = json!({ "width": window.width, "height": window.height, "deviceScaleFactor": 1, "mobile": window.phone });
        self.call("Emulation.setDeviceMetricsOverride", metrics)
            .await;
    }

    /// Sets the preferred color scheme.
    pub async fn dark(&self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": value }] });
        self.call("Emulation.setEmulatedMedia", features).await;
    }

    /// Enables or disables scripts.
    pub async fn scripts(&self, run: bool) {
        self.call(
            "Emulation.setScriptExecutionDisabled",
            json!({ "value": !run }),
        )
        .await;
    }

    /// Screenshot as a PNG: the window, or the whole page.
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

    /// All errors of the page since it was opened.
    pub fn errors(&self) -> Vec<String> {
        let events = self.pipe.events(&self.session);
        events.iter().filter_map(error_text).collect()
    }
}

fn error_text(event: &Value) -> Option<String> {
    let of = &event["params"];
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => Some(of["exceptionDetails"].to_string()),
        "Runtime.consoleAPICalled" if of["type"] == "error" || of["type"] == "warning" => {
            Some(of["args"].to_string())
        }
        // Includes policy violations.
        "Log.entryAdded"
            if of["entry"]["level"] == "error" || of["entry"]["level"] == "warning" =>
        {
            Some(of["entry"].to_string())
        }
        "Page.javascriptDialogOpening" => Some(format!("a dialog: {}", of["message"])),
        _ => None,
    }
}
