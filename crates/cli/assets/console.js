// Refreshes live parts of a page. Every page works without it.
"use strict";

(() => {
  const INTERVAL = 2000;
  const parts = () => [...document.querySelectorAll("[data-live]")];
  const note = document.querySelector("[data-note]");
  let failures = 0;

  const notify = (text) => {
    if (!note) return;
    note.textContent = text;
    note.hidden = text === "";
  };

  // Don't replace content that the user is interacting with.
  const inUse = (part) => part.contains(document.activeElement) || part.querySelector("input:checked") !== null;

  const refresh = async () => {
    const response = await fetch(location.href, { headers: { accept: "text/html" }, credentials: "same-origin" });
    if (response.redirected) return location.reload();
    if (!response.ok) throw new Error(String(response.status));
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const part of parts()) {
      const other = fresh.getElementById(part.id);
      if (other && !inUse(part) && other.innerHTML !== part.innerHTML) part.replaceWith(document.adoptNode(other));
    }
  };

  const tick = async () => {
    if (!document.hidden && parts().length > 0) {
      try {
        await refresh();
        failures = 0;
        notify("");
      } catch {
        failures += 1;
        if (failures > 1) notify("The server does not respond; this page may be out of date.");
      }
    }
    setTimeout(tick, INTERVAL * Math.min(8, 1 + failures));
  };
  setTimeout(tick, INTERVAL);

  // A check box that selects all others.
  document.addEventListener("change", (event) => {
    const all = event.target;
    if (!(all instanceof HTMLInputElement) || !all.matches("[data-all]")) return;
    for (const box of document.querySelectorAll(`input[name="${all.dataset.all}"]`)) box.checked = all.checked;
  });

  // "/" goes to the search box.
  document.addEventListener("keydown", (event) => {
    const typing = event.target instanceof HTMLElement && event.target.matches("input, textarea, select");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const box = document.querySelector("input[type=search]");
    if (box) {
      event.preventDefault();
      box.focus();
    }
  });
})();
