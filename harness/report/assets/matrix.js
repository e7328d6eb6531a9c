// The packed matrix as objects, and the matrix table: virtual rows, filter, arrow keys.
"use strict";
report.unpacked = (function () {
  const known = new Map();
  return function (packed) {
    let one = known.get(packed);
    if (!one) {
      const runs = [...packed.matchAll(/([A-Z-])(\d*)/g)].map((found) => [found[1], Number(found[2] || 1)]);
      const letters = runs.map(([letter, times]) => letter.repeat(times)).join("");
      one = { runs, letters, moves: letters.replace(/-/g, "").replace(/(.)\1+/g, "$1") };
      known.set(packed, one);
    }
    return one;
  };
})();

report.Case = class {
  constructor(index, model, config, columns, words) {
    this.index = index;
    this.model = model;
    this.config = config;
    this.status = report.STATUS[columns.status[index]];
    this.outcome = words.outcome[columns.outcome[index]];
    this.ratio = columns.ratio[index];
    this.share = columns.share[index];
    this.seconds = columns.seconds[index];
    this.flags = words.flags[columns.flags[index]];
    this.packed = words.history[columns.history[index]];
    this.labels = words.labels[columns.labels[index]];
  }
  get configuration() { return this.config.name; }
  get id() { return this.model.name + "/" + this.model.task + "/" + this.configuration; }
  // Whether the word, in lower case, occurs in the id, family, architecture or outcome.
  mentions(word) {
    if (word.includes("/")) return this.id.toLowerCase().includes(word);
    return this.model.lower.includes(word) || this.configuration.includes(word) || this.outcome.includes(word);
  }
  get link() { return "model.html#case=" + encodeURIComponent(this.id); }
  // Pairs [letter, runs], oldest first. Few histories are distinct: each is unpacked once.
  runs() { return report.unpacked(this.packed).runs; }
  letters() { return report.unpacked(this.packed).letters; }
  moves() { return report.unpacked(this.packed).moves; }
  tally(letter) { return this.runs().reduce((sum, [one, times]) => sum + (one === letter ? times : 0), 0); }
  // Start of the first run with the present status; null when it never changed.
  changed() {
    const runs = this.runs();
    if (runs.length < 2) return null;
    const at = report.site.runs.length - runs[runs.length - 1][1];
    return Date.parse(report.site.runs[at].started);
  }
};

report.decode = function (packed) {
  const models = [], cases = [];
  for (const config of packed.configs) config.name = config.filter(Boolean).join("-");
  let at = 0, chunk = 0;
  for (let row = 0; row < packed.names.length; row += 1) {
    while (chunk + 1 < packed.starts.length && packed.starts[chunk + 1] <= row) chunk += 1;
    const model = {
      index: row, name: packed.names[row], task: packed.words.task[packed.tasks[row]],
      family: packed.words.family[packed.families[row]], architecture: packed.words.architecture[packed.architectures[row]],
      adapter: packed.words.adapter[packed.adapters[row]],
      chunk, place: row - packed.starts[chunk], cases: [],
    };
    model.lower = [model.name, model.task, model.family, model.architecture].join(" ").toLowerCase();
    for (let end = at + packed.counts[row]; at < end; at += 1) {
      const one = new report.Case(at, model, packed.configs[packed.config[at]], packed, packed.words);
      model.cases.push(one);
      cases.push(one);
    }
    models.push(model);
  }
  return { configs: packed.configs, models, cases };
};

// Rows of one height in a scrolling box: only those in sight are in the document.
report.virtual = function (scroller, body, height, render) {
  let rows = [], from = -1, to = -1;
  function spacer(count) {
    const row = report.h("tr", { class: "spacer", "aria-hidden": "true" }, report.h("td", { colspan: 99 }));
    row.firstChild.style.height = count * height + "px";
    return row;
  }
  function draw(force) {
    const all = rows.length <= 150;
    const start = all ? 0 : Math.max(0, Math.floor(scroller.scrollTop / height) - 8);
    const end = all ? rows.length : Math.min(rows.length, start + Math.ceil((scroller.clientHeight || 800) / height) + 16);
    if (!force && start === from && end === to) return;
    from = start;
    to = end;
    const shown = rows.slice(start, end).map((row, offset) => render(row, start + offset));
    body.replaceChildren(...(start ? [spacer(start)] : []), ...shown, ...(end < rows.length ? [spacer(rows.length - end)] : []));
  }
  let due = false;
  scroller.addEventListener("scroll", () => {
    if (due) return;
    due = true;
    requestAnimationFrame(() => { due = false; draw(false); });
  }, { passive: true });
  return {
    set(next) { rows = next; scroller.classList.toggle("tall", rows.length > 150); scroller.scrollTop = 0; draw(true); },
    show(index) { if (index < from || index >= to) { scroller.scrollTop = Math.max(0, index * height - 100); draw(false); } },
    get rows() { return rows; },
  };
};

report.matrixTable = function (root, world) {
  const { h, readable, percent } = report;
  const HEIGHT = 52;
  let keep = () => true;
  const scroller = h("div", { class: "scroll grid", tabindex: "0", role: "region", "aria-label": "Matrix of models and configurations" });
  scroller.style.setProperty("--columns", world.configs.length);
  const body = h("tbody");
  const heads = world.configs.map(([target, mode, dtype, shape, check]) => h("th", { scope: "col" }, h("small", {}, [target, shape, check].filter(Boolean).join(" · ")), mode + " " + dtype));
  scroller.append(h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, h("small", {}, "task"), "Model"), heads)), body));
  const table = report.virtual(scroller, body, HEIGHT, row);

  function cell(one, place) {
    if (!one) return h("td", { class: "" }, h("span", { class: "cell empty" }, "not planned"));
    const ended = one.outcome === "completed" || one.outcome === "no_result" ? one.outcome.replace("completed", "") : one.outcome;
    const measure = [one.ratio === null ? null : h("span", { title: "error ratio " + one.ratio }, readable(one.ratio, "×")),
      one.share === null ? null : h("span", { title: "share of op calls on the device" }, percent(one.share))];
    return h("td", {}, h("a", { class: "cell " + one.status, href: one.link, tabindex: place === 0 ? null : "-1", "data-column": place, style: null },
      report.status(one.status, ended ? h("span", { class: "why" }, ended.replaceAll("_", " ")) : null),
      h("span", { class: "measure" }, measure)));
  }
  function row(item, at) {
    if (item.group !== undefined) {
      return h("tr", { class: "family", "aria-rowindex": at + 2 }, h("th", { scope: "rowgroup", colspan: world.configs.length + 1 }, item.group, " ", h("small", {}, item.count + (item.count === 1 ? " model" : " models"))));
    }
    const byConfig = new Map(item.cases.map((one) => [one.config, one]));
    const link = h("a", { href: "model.html#model=" + encodeURIComponent(item.name), title: item.name }, item.name);
    const line = h("tr", { "aria-rowindex": at + 2 }, h("th", { scope: "row" }, link, h("small", {}, item.task + (item.architecture ? " · " + item.architecture : ""))),
      world.configs.map((config, place) => cell(byConfig.get(config), place)));
    for (const one of item.cases) if (!keep(one)) line.children[1 + world.configs.indexOf(one.config)].firstChild.classList.add("dim");
    return line;
  }
  // Arrow keys move between cells; only the first cell of a row is in the tab order.
  scroller.addEventListener("keydown", (event) => {
    const step = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const link = event.target.closest("tbody a");
    if (!step || !link) return;
    event.preventDefault();
    const line = link.closest("tr"), index = Number(line.getAttribute("aria-rowindex")) - 2 + step[0];
    const column = Math.max(0, [...line.children].indexOf(link.closest("td, th")) + step[1]);
    if (index < 0 || index >= table.rows.length) return;
    table.show(index);
    const next = body.querySelector('tr[aria-rowindex="' + (index + 2) + '"]');
    const target = next && next.children[column] && next.children[column].querySelector("a");
    if (target) target.focus({ preventScroll: false });
  });
  root.replaceChildren(scroller);
  return {
    // Show the models with a case that the predicate keeps, arranged; returns [models, cases] kept.
    filter(predicate, arrange) {
      keep = predicate;
      let kept = 0;
      const rows = world.models.filter((model) => {
        let any = 0;
        for (const one of model.cases) if (predicate(one)) any += 1;
        kept += any;
        return any > 0;
      });
      const lines = arrange ? arrange(rows, predicate) : rows;
      scroller.firstChild.setAttribute("aria-rowcount", lines.length + 1);
      table.set(lines);
      if (!rows.length) body.replaceChildren(h("tr", {}, h("td", { colspan: world.configs.length + 1 }, h("span", { class: "cell empty" }, "No case matches."))));
      return [rows.length, kept];
    },
  };
};

report.filterBar = function (world, apply) {
  const { h, state } = report;
  const input = h("input", { type: "search", id: "query", placeholder: "Filter: granite status:fail mode:compiled ratio>5", "aria-label": "Filter cases", spellcheck: "false", autocomplete: "off" });
  const shown = h("span", { class: "shown", role: "status" });
  const again = () => run();
  function run() {
    const [models, cases] = apply(report.query.compile(input.value));
    shown.textContent = cases.toLocaleString("en-US") + " of " + world.cases.length.toLocaleString("en-US") + " cases in " + models.toLocaleString("en-US") + (models === 1 ? " model" : " models");
  }
  function fromHash() {
    const text = state.read().get("q") || "";
    if (text !== input.value || !shown.textContent) { input.value = text; run(); }
  }
  input.addEventListener("input", () => { state.write({ q: input.value }); run(); });
  addEventListener("hashchange", fromHash);
  addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.target.closest("input, textarea, select")) { event.preventDefault(); input.focus(); }
  });
  return { node: h("div", { class: "bar" }, input, shown), start: fromHash, again, get text() { return input.value; }, set(text) { input.value = text; state.write({ q: text }); run(); } };
};
