// Ops over all models: which block the most, the op x model matrix, variants that work and fail.
"use strict";
report.views["ops.html"] = async function () {
  const { h, state } = report;
  const world = await report.open();
  const index = await report.openOps(world);
  const { data } = index;
  const root = document.getElementById("view");
  const STATES = data.states, MARK = { spyre_enabled: "●", cpu_fallback: "◐", spyre_failed: "✕", not_implemented: "○" };
  const label = (name) => h("span", { class: "state " + name }, MARK[name] + " " + name);
  const configs = [...new Set(world.cases.map((one) => one.configuration))];

  const search = h("input", { type: "search", placeholder: "Filter ops: mm, softmax, aten.sin", "aria-label": "Filter ops", autocomplete: "off", spellcheck: "false" });
  const pick = (key, text, options) => h("select", { "aria-label": text }, options.map(([value, name]) => h("option", { value }, name)));
  const byState = pick("state", "Op state", [["", "all states"], ...STATES.map((one) => [one, one])]);
  const byConfig = pick("config", "Configuration", [["", "all configurations"], ...configs.map((one) => [one, one])]);
  const columns = h("input", { type: "search", placeholder: "Models as columns: granite, smollm", "aria-label": "Models as columns", autocomplete: "off", spellcheck: "false" });
  const shown = h("span", { class: "shown", role: "status" });
  const box = h("div"), detail = h("div");

  function rows() {
    const cases = byConfig.value ? world.cases.filter((one) => one.configuration === byConfig.value) : world.cases;
    const states = index.states(cases);
    return data.ops.map((name, op) => {
      const counts = [0, 0, 0, 0];
      for (const value of states[op].values()) counts[value] += 1;
      return { op, name, counts, states: states[op], models: states[op].size, blocked: counts[2] + counts[3], fallback: counts[1], fallbackCalls: data.calls[op][1] };
    }).filter((row) => row.models);
  }
  function draw() {
    const text = search.value.trim().toLowerCase(), code = STATES.indexOf(byState.value);
    const wanted = columns.value.toLowerCase().split(",").map((word) => word.trim()).filter(Boolean);
    const models = (wanted.length ? world.models.filter((model) => wanted.some((word) => model.name.toLowerCase().includes(word))) : world.models).slice(0, 12);
    const kept = rows().filter((row) => row.name.toLowerCase().includes(text) && (code < 0 || row.counts[code]))
      .sort((a, b) => b.blocked - a.blocked || b.fallback - a.fallback || b.models - a.models || (a.name < b.name ? -1 : 1));
    const total = new Set(world.cases.filter((one) => data.case[one.index] >= 0).map((one) => one.model.index)).size;
    shown.textContent = kept.length + " of " + data.ops.length + " ops, " + total.toLocaleString("en-US") + " models";
    const head = h("tr", {}, h("th", { scope: "col" }, "Op"), ["Blocks", "Falls back", "Works", "Fallback calls"].map((text) => h("th", { scope: "col", class: "number" }, text)),
      models.map((model) => h("th", { scope: "col", class: "turned", title: model.name }, h("span", {}, model.name))));
    const lines = kept.map((row) => h("tr", {}, h("th", { scope: "row" }, h("a", { class: "mono", href: "#op=" + encodeURIComponent(row.name) }, row.name)),
      [row.blocked, row.fallback, row.counts[0], row.fallbackCalls].map((value, at) => h("td", { class: "number" + (at === 0 && value ? " loud" : "") }, value ? value.toLocaleString("en-US") + (at < 3 ? " of " + row.models.toLocaleString("en-US") : "") : "–")),
      models.map((model) => { const value = row.states.get(model.index); return h("td", { class: "mark" }, value === undefined ? h("span", { class: "quiet", title: "not used" }, "–") : h("span", { class: "state " + STATES[value], title: model.name + ": " + STATES[value] }, MARK[STATES[value]], h("span", { class: "visually-hidden" }, STATES[value]))); })));
    box.replaceChildren(h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Op by model" }, h("table", { class: "opmatrix" }, h("thead", {}, head), h("tbody", {}, lines))));
  }
  async function open() {
    const name = state.read().get("op"), op = data.ops.indexOf(name);
    if (op < 0) { detail.replaceChildren(); return; }
    const variants = (await report.load("variants"))[op];
    const lines = [...variants].sort((a, b) => [2, 3, 1, 0].indexOf(a[0]) - [2, 3, 1, 0].indexOf(b[0]) || b[1] - a[1]).map(([code, calls, cases, example, operands]) => h("tr", {},
      h("td", {}, label(STATES[code])), h("td", { class: "mono" }, operands.map((one) => "[" + one[0].join(", ") + "]").join("  ")), h("td", { class: "mono" }, operands.map((one) => "(" + one[1].join(", ") + ")").join("  ")),
      h("td", { class: "mono" }, [...new Set(operands.map((one) => one[2]))].join(", ")), h("td", { class: "number" }, calls.toLocaleString("en-US")), h("td", { class: "number" }, cases.toLocaleString("en-US")),
      h("td", {}, h("a", { href: world.cases[example].link }, world.cases[example].model.name))));
    const row = rows().find((one) => one.op === op);
    const blocked = row ? [...row.states].filter(([, code]) => code > 1).map(([model]) => world.models[model]) : [];
    detail.replaceChildren(h("section", { class: "panel", "aria-labelledby": "op-title" }, h("h2", { id: "op-title", tabindex: "-1" }, h("span", { class: "mono" }, name)),
      blocked.length ? h("p", {}, "Blocks " + blocked.length.toLocaleString("en-US") + (blocked.length === 1 ? " model: " : " models: "), blocked.slice(0, 20).map((model, at) => [at ? ", " : "", h("a", { href: "model.html#model=" + encodeURIComponent(model.name) }, model.name)]), blocked.length > 20 ? " …" : "") : h("p", {}, "Blocks no model."),
      h("p", {}, h("a", { href: "matrix.html#q=" + encodeURIComponent("op:" + name) }, "Cases that use it")),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Variants" }, h("table", {}, h("thead", {}, h("tr", {}, ["State", "Shapes", "Strides", "Dtypes"].map((text) => h("th", { scope: "col" }, text)), ["Calls", "Cases"].map((text) => h("th", { scope: "col", class: "number" }, text)), h("th", { scope: "col" }, "For example"))), h("tbody", {}, lines)))));
    document.getElementById("op-title").focus({ preventScroll: true });
    detail.scrollIntoView({ block: "start" });
  }
  function costs() {
    if (!data.padding.length) return null;
    return [h("h2", {}, "Padding and fallback cost ", h("span", { class: "aside" }, "compiled cases, largest padding first")), h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Padding and fallback cost" }, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Case"), ["Padding", "Restickifies", "Fallback steps"].map((text) => h("th", { scope: "col", class: "number" }, text)))),
      h("tbody", {}, data.padding.map(([padded, moved, steps, at]) => h("tr", {}, h("td", {}, h("a", { class: "mono", href: world.cases[at].link, title: world.cases[at].id }, world.cases[at].id)), h("td", { class: "number" }, report.bytes(padded)), h("td", { class: "number" }, moved.toLocaleString("en-US")), h("td", { class: "number" }, steps.toLocaleString("en-US")))))))];
  }
  for (const control of [search, byState, byConfig, columns]) control.addEventListener("input", draw);
  const HEADER = ["op", "blocks", "falls_back", "works", "models", "fallback_calls"];
  const csv = h("button", { type: "button", class: "button", onclick: () => report.save("ops-" + report.site.runs[report.site.runs.length - 1].id + ".csv", "text/csv", [HEADER, ...rows().map((row) => [row.name, row.blocked, row.fallback, row.counts[0], row.models, row.fallbackCalls])].map((line) => line.join(",")).join("\n") + "\n") }, "CSV");
  root.replaceChildren(h("p", {}, "Ranked by how many models they block. ", STATES.map((name) => [label(name), " "])), h("div", { class: "bar" }, search, byState, byConfig, columns, shown, csv), box, detail, ...[costs()].flat().filter(Boolean));
  addEventListener("hashchange", open);
  draw();
  await open();
};
