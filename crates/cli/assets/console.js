// Keeps a page fresh. Everything can be read without it.
"use strict";

(() => {
  const PAUSE = 2000;
  const parts = () => [...document.querySelectorAll("[data-live]")];
  const note = document.querySelector("[data-note]");
  let failures = 0;

  const say = (text) => {
    if (!note) return;
    note.textContent = text;
    note.hidden = text === "";
  };

  // Nothing is pulled away under somebody's hand.
  const inUse = (part) => part.contains(document.activeElement) || part.querySelector("input:checked") !== null;

  const refresh = async () => {
    const answer = await fetch(location.href, { headers: { accept: "text/html" }, credentials: "same-origin" });
    if (answer.redirected) return location.reload();
    if (!answer.ok) throw new Error(String(answer.status));
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
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
        say("");
      } catch {
        failures += 1;
        if (failures > 1) say("The server does not answer; what you see may be old.");
      }
    }
    setTimeout(tick, PAUSE * Math.min(8, 1 + failures));
  };
  setTimeout(tick, PAUSE);

  // One box that ticks all others.
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
