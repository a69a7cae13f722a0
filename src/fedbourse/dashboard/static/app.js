// What every page shares: marks that scripts run, fills meters, and keeps a form from being sent twice.
"use strict";
document.documentElement.classList.add("scripted");

window.fillMeters = (root) => {
  for (const bar of root.querySelectorAll(".meter > span[data-share]")) {
    bar.style.width = `${100 * Math.min(1, Math.max(0, Number(bar.dataset.share)))}%`;
  }
};

document.addEventListener("DOMContentLoaded", () => fillMeters(document));
document.addEventListener("htmx:after:swap", () => fillMeters(document));

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post" || event.defaultPrevented) return;
  // After the browser has read the form: a button that is off would be left out of it.
  setTimeout(() => form.querySelectorAll("button").forEach((button) => { button.disabled = true; }));
});

// What pages keep in this browser is for the one who is signed in.
document.addEventListener("submit", (event) => {
  if (event.target.getAttribute("action") !== "/sign-out") return;
  for (const name of ["sessionStorage", "localStorage"]) {
    try {
      const store = window[name];
      Object.keys(store).filter((key) => key.startsWith("fedbourse ")).forEach((key) => store.removeItem(key));
    } catch { /* the browser keeps nothing for us */ }
  }
});

// A page that comes back from the browser's memory can be sent again.
window.addEventListener("pageshow", (event) => {
  if (event.persisted) document.querySelectorAll("button:disabled").forEach((button) => { button.disabled = false; });
});

// The colour of a CSS variable, for charts: colour("--series-1").
window.colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
