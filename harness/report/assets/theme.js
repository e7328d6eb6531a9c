// Runs before the first paint: the reader's choice, or the system's.
"use strict";
(function () {
  let chosen = null;
  try { chosen = localStorage.getItem("theme"); } catch (blocked) { chosen = null; }
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
})();
