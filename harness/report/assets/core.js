// Data registry, DOM building from text alone, numbers and times for reading, state in the URL's hash.
"use strict";
const report = (function () {
  const arrived = new Map(), waiting = new Map();

  function data(name, value) {
    arrived.set(name, value);
    (waiting.get(name) || []).forEach((resolve) => resolve(value));
    waiting.delete(name);
  }

  // A chunk as a script tag: the only loading that file:// allows.
  function load(name) {
    if (arrived.has(name)) return Promise.resolve(arrived.get(name));
    return new Promise((resolve, reject) => {
      const first = !waiting.has(name);
      waiting.set(name, [...(waiting.get(name) || []), resolve]);
      if (!first) return;
      const script = document.createElement("script");
      script.src = "data/" + name + ".js";
      script.onerror = () => reject(new Error("data/" + name + ".js cannot be read"));
      document.head.append(script);
    });
  }

  // h("td", {class: "number", title: "…"}, "text", node, …): strings become text nodes, never markup.
  function h(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (name === "value") node.value = value;
      else node.setAttribute(name, value === true ? "" : String(value));
    }
    node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return node;
  }

  const SHAPES = {
    PASS: "M3.5 8.5l3 3 6-7", FAIL: "M4 4l8 8M12 4l-8 8", ERROR: "M8 2.5l6 11H2zM8 6.5v3.5M8 11.2v1.2",
    XPASS: "M3 11l5-7 5 7M8 5v9", NOTRUN: "M8 2a6 6 0 100 12A6 6 0 008 2M8 5v3.5l2 1.5", SKIP: "M3.5 8h9",
    XFAIL: "M2.5 8a5.5 5.5 0 1011 0 5.5 5.5 0 00-11 0M5.8 5.8l4.4 4.4M10.2 5.8l-4.4 4.4", ABSENT: "",
    sun: "M8 5a3 3 0 100 6 3 3 0 000-6M8 1v2M8 13v2M1 8h2M13 8h2M3 3l1.4 1.4M11.6 11.6L13 13M3 13l1.4-1.4M11.6 4.4L13 3",
    moon: "M13 9.5A5.5 5.5 0 116.5 3 4.5 4.5 0 0013 9.5",
  };
  function icon(name) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 16 16");
    svg.setAttribute("width", "16");
    svg.setAttribute("height", "16");
    svg.setAttribute("aria-hidden", "true");
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", SHAPES[name] || "");
    path.setAttribute("fill", "none");
    path.setAttribute("stroke", "currentColor");
    path.setAttribute("stroke-width", "1.6");
    svg.append(path);
    return svg;
  }

  const STATUS = { P: "PASS", F: "FAIL", K: "XFAIL", X: "XPASS", S: "SKIP", E: "ERROR", N: "NOTRUN", "-": "ABSENT" };
  const status = (word, ...more) => h("span", { class: "status " + word }, icon(word), word, ...more);

  // "NaN", "Infinity" and "-Infinity" stand for numbers that JSON lacks; null is undefined.
  function number(value) {
    return typeof value === "string" ? Number(value) : value;
  }
  function readable(value, unit) {
    value = number(value);
    if (value === null || value === undefined) return "–";
    if (Number.isNaN(value)) return "NaN";
    if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
    const size = Math.abs(value);
    let text;
    if (value !== 0 && (size < 1e-3 || size >= 1e7)) text = value.toExponential(2);
    else if (size >= 1000) text = Math.round(value).toLocaleString("en-US");
    // Close to one the distance to one is the news: a cosine of 0.99991 must not read 1.
    else if (size > 0.99 && size < 1) text = String(Number(value.toFixed(Math.min(15, Math.ceil(-Math.log10(1 - size)) + 1))));
    else text = String(Number(value.toPrecision(3)));
    return text + (unit || "");
  }
  function percent(value) {
    value = number(value);
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    if (value > 0 && value < 0.001) return "<0.1 %";
    if (value < 1 && value > 0.999) return ">99.9 %";
    return String(Number((value * 100).toPrecision(3))) + " %";
  }
  function bytes(value) {
    if (value === null || value === undefined) return "–";
    const units = ["B", "kB", "MB", "GB", "TB"];
    let at = 0;
    while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
    return Number(value.toPrecision(3)) + " " + units[at];
  }
  function duration(seconds) {
    seconds = number(seconds);
    if (seconds === null || seconds === undefined) return "–";
    if (seconds < 60) return readable(seconds, " s");
    const minutes = Math.floor(Math.round(seconds) / 60);
    if (minutes < 60) return minutes + " m " + (Math.round(seconds) % 60) + " s";
    return Math.floor(minutes / 60) + " h " + (minutes % 60) + " m";
  }
  // A measured value: rounded for reading, whole on hover.
  function measured(value, text) {
    const full = value === null || value === undefined ? "undefined" : String(value);
    return h("span", { title: full }, text === undefined ? readable(value) : text);
  }

  const LOCAL = { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", timeZoneName: "short" };
  function time(iso) {
    const at = new Date(iso);
    if (Number.isNaN(at.getTime())) return h("span", {}, String(iso));
    const node = h("time", { datetime: iso, title: at.toISOString().replace("T", " ").replace(/\.\d+Z/, " UTC") });
    node.textContent = at.toLocaleString("en-GB", LOCAL);
    return node;
  }
  function localTimes(root) {
    for (const node of root.querySelectorAll("time[datetime]")) {
      if (!node.title) node.replaceWith(time(node.getAttribute("datetime")));
    }
  }

  // State lives in the hash: it works on file:// and survives a copied link.
  const state = {
    read() { return new URLSearchParams(location.hash.slice(1)); },
    write(changes, push) {
      const next = state.read();
      for (const [key, value] of Object.entries(changes)) {
        if (value === null || value === "") next.delete(key);
        else next.set(key, value);
      }
      const hash = "#" + next.toString();
      if (hash === location.hash) return;
      if (push) location.hash = hash;
      else window.history.replaceState(null, "", hash === "#" ? location.pathname + location.search : hash);
    },
  };

  function save(name, type, text) {
    const link = h("a", { download: name, href: URL.createObjectURL(new Blob([text], { type })) });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function themeButton() {
    const button = document.getElementById("theme");
    const show = () => button.replaceChildren(icon(document.documentElement.dataset.theme === "dark" ? "sun" : "moon"));
    button.addEventListener("click", () => {
      const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
      document.documentElement.dataset.theme = next;
      try { localStorage.setItem("theme", next); } catch (blocked) { /* private windows keep no choice */ }
      show();
      document.dispatchEvent(new Event("themechange"));
    });
    show();
  }

  // A column of float32 in base64: -1 stands for undefined.
  function column(text) {
    const raw = atob(text), bytes = new Uint8Array(raw.length);
    for (let at = 0; at < raw.length; at += 1) bytes[at] = raw.charCodeAt(at);
    const view = new DataView(bytes.buffer), numbers = new Array(raw.length / 4);
    for (let at = 0; at < numbers.length; at += 1) {
      const value = view.getFloat32(4 * at, true);
      numbers[at] = value === -1 ? null : Number.isFinite(value) ? Number(value.toPrecision(6)) : value;
    }
    return numbers;
  }
  // Error ratio, share on device and seconds of one case over all runs.
  async function numbersOverTime(one) {
    const chunk = await load("history-" + one.model.chunk), runs = report.site.runs.length;
    const pick = (text) => { const all = column(text), width = all.length / runs; return Array.from({ length: runs }, (_, run) => all[run * width + one.index - chunk.first]); };
    return { ratio: pick(chunk.ratio), share: pick(chunk.share), seconds: pick(chunk.seconds) };
  }

  // Served locally while a run goes on: load the stamp again, and the page when it has changed.
  function follow() {
    let first = null;
    setInterval(() => {
      if (document.hidden) return;
      arrived.delete("stamp");
      const script = document.createElement("script");
      script.src = "data/stamp.js?" + Date.now();
      script.onload = () => {
        script.remove();
        const stamp = arrived.get("stamp");
        if (first !== null && stamp !== first) location.reload();
        first = stamp;
      };
      script.onerror = () => script.remove();
      document.head.append(script);
    }, 3000);
  }

  // The runs and the decoded matrix: what every view starts from.
  let world = null;
  async function open() {
    if (world) return world;
    report.site = await load("site");
    for (const run of report.site.runs) run.environment = report.site.environments[run.environment];
    world = report.decode(await load("matrix"));
    const runs = report.site.runs;
    report.newest = () => Date.parse(runs[runs.length - 1].started);
    return world;
  }

  const views = {};
  return {
    data, load, h, icon, status, STATUS, number, readable, percent, bytes, duration, measured, time, localTimes,
    state, save, themeButton, column, numbersOverTime, follow, open, views,
  };
})();
