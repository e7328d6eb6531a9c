// The matrix with query, grouping, sorting and export of exactly what is shown.
"use strict";
report.views["matrix.html"] = async function () {
  const { h, state } = report;
  const world = await report.open();
  const root = document.getElementById("view");
  const box = h("div");
  const table = report.matrixTable(box, world);
  const WORST = ["ERROR", "FAIL", "XPASS", "NOTRUN", "XFAIL", "SKIP", "PASS"];
  const high = (cases, read) => cases.reduce((most, one) => { const value = report.number(read(one)); return value === null ? most : Math.max(most, Number.isNaN(value) ? Infinity : value); }, -1);
  const SORTS = {
    "": ["family and name", null],
    status: ["worst status", (m, kept) => Math.min(...kept.map((one) => WORST.indexOf(one.status)))],
    ratio: ["largest error ratio", (m, kept) => -high(kept, (one) => one.ratio)],
    share: ["least on device", (m, kept) => { const known = kept.map((one) => report.number(one.share)).filter((value) => value !== null); return known.length ? Math.min(...known) : 2; }],
    seconds: ["longest time", (m, kept) => -high(kept, (one) => one.seconds)],
    changed: ["changed last", (m, kept) => -Math.max(...kept.map((one) => one.changed() || 0))],
    name: ["name", (m) => m.name.toLowerCase()],
  };
  const GROUPS = { "": "no groups", family: "by family", task: "by task", architecture: "by architecture", adapter: "by adapter (replaced ops)" };

  const choose = (key, label, options) => h("select", { "aria-label": label, value: "", onchange: (event) => { state.write({ [key]: event.target.value }); bar.again(); } },
    Object.entries(options).map(([value, text]) => h("option", { value }, text)));
  const sort = choose("sort", "Sort models", Object.fromEntries(Object.entries(SORTS).map(([key, [text]]) => [key, "Sort: " + text])));
  const group = choose("group", "Group models", GROUPS);

  let shown = [];
  function arrange(models, keep) {
    const rank = SORTS[sort.value][1];
    const kept = new Map(models.map((model) => [model, model.cases.filter(keep)]));
    let rows = models;
    if (rank) {
      const ranks = new Map(models.map((model) => [model, rank(model, kept.get(model))]));
      rows = [...models].sort((a, b) => { const x = ranks.get(a), y = ranks.get(b); return x < y ? -1 : x > y ? 1 : a.index - b.index; });
    }
    if (group.value) {
      const groups = new Map();
      for (const model of rows) groups.set(model[group.value], [...(groups.get(model[group.value]) || []), model]);
      rows = [...groups].flatMap(([name, members]) => [{ group: name || (group.value === "adapter" ? "not told by the device" : "none"), count: members.length }, ...members]);
    }
    shown = rows.filter((row) => row.cases).flatMap((model) => kept.get(model));
    return rows;
  }
  const bar = report.filterBar(world, (predicate) => table.filter(predicate, arrange));

  const COLUMNS = ["case", "model", "task", "family", "architecture", "adapter", "target", "mode", "dtype", "shape", "check", "status", "outcome", "error_ratio", "device_share", "seconds", "flags", "changes", "history"];
  const line = (one) => [one.id, one.model.name, one.model.task, one.model.family, one.model.architecture, one.model.adapter, ...one.config, one.status, one.outcome, one.ratio, one.share, one.seconds, one.flags, one.labels, one.letters()];
  const cell = (value) => { let text = value === null ? "" : String(value); if (/^[=+\-@\t\r]/.test(text) && typeof value === "string" && Number.isNaN(Number(text))) text = "'" + text; return /[",\n\r]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text; };
  const name = (kind) => "cases-" + report.site.runs[report.site.runs.length - 1].id + "." + kind;
  const csv = h("button", { type: "button", class: "button", onclick: () => report.save(name("csv"), "text/csv", [COLUMNS, ...shown.map(line)].map((row) => row.map(cell).join(",")).join("\n") + "\n") }, "CSV");
  const json = h("button", { type: "button", class: "button", onclick: () => report.save(name("json"), "application/json", JSON.stringify(shown.map((one) => Object.fromEntries(line(one).map((value, at) => [COLUMNS[at], value]))), null, 1)) }, "JSON");
  bar.node.append(sort, group, csv, json);

  const HELP = [["granite", "words anywhere in the case id, family, architecture or outcome"], ["status:fail,error", "one of these statuses"], ["task: model: family: arch: adapter: target: mode: dtype: shape: check: outcome: flag:", "fields"],
    ["ratio>5  share<100  seconds>=60", "numbers; NaN is above every limit"], ["change:regressed  change:worse", "what became of the case in the newest run"], ["seq:pass>fail", "statuses next to each other in the history"],
    ["since:7d", "the present status is not older than this"], ["count:fail>=3", "number of runs with a status"], ["is:different  is:unexpected", "moved between runs; needs attention now"],
    ["op:aten.sin  state:cpu_fallback", "uses an op; has an op in a state"], ["-mode:eager", "a minus excludes"]];
  const help = h("details", { class: "help" }, h("summary", {}, "Query language"), h("dl", {}, HELP.map(([example, text]) => h("div", {}, h("dt", {}, h("code", {}, example)), h("dd", {}, text)))));

  async function start() {
    const hash = state.read();
    sort.value = hash.get("sort") in SORTS ? hash.get("sort") : "";
    group.value = hash.get("group") in GROUPS ? hash.get("group") : "";
    if (report.query.needsOps(hash.get("q") || "")) await report.openOps(world);
    bar.start();
  }
  bar.node.addEventListener("input", async () => {
    if (report.opIndex || !report.query.needsOps(bar.text)) return;
    await report.openOps(world);
    bar.again();
  });
  root.replaceChildren(bar.node, box, help);
  await start();
};
