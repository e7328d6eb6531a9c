// One model: a tab per case, and all evidence of the case chosen.
"use strict";
report.views["model.html"] = async function () {
  const { h, state, evidence } = report;
  const root = document.getElementById("model");
  const world = await report.open();

  function wanted() {
    const hash = state.read(), id = hash.get("case"), name = hash.get("model");
    if (id !== null) {
      const one = world.cases.find((c) => c.id === id);
      return one ? [one.model, one] : [null, null];
    }
    const model = world.models.find((m) => m.name === name);
    return model ? [model, worst(model.cases)] : [null, null];
  }
  const ORDER = ["ERROR", "FAIL", "XPASS", "NOTRUN", "XFAIL", "SKIP", "PASS"];
  const worst = (cases) => [...cases].sort((a, b) => ORDER.indexOf(a.status) - ORDER.indexOf(b.status))[0];

  async function show() {
    const [model, one] = wanted();
    if (!model) {
      const hash = state.read(), name = hash.get("case") || hash.get("model");
      root.replaceChildren(h("p", { class: "crumb" }, h("a", { href: "index.html" }, "Overview")), h("h1", {}, name ? "No such case" : "No model chosen"),
        h("p", {}, name ? "The newest run holds nothing named " : "Choose one in the overview.", name ? h("code", {}, name) : null));
      return;
    }
    document.title = model.name + " · Spyre conformance";
    const chunk = await report.load("detail-" + model.chunk);
    const numbers = report.site.runs.length > 1 ? await report.numbersOverTime(one) : null;
    draw(model, one, chunk[model.place].cases, numbers);
  }

  function draw(model, chosen, details, numbers) {
    const tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Cases of this model" });
    model.cases.forEach((one) => {
      const on = one === chosen;
      tabs.append(h("button", { type: "button", class: "tab", role: "tab", id: "tab-" + one.index, "aria-selected": String(on), "aria-controls": "panel", tabindex: on ? "0" : "-1",
        onclick: () => { state.write({ case: one.id, model: null }, true); } }, h("span", { class: "name" }, one.config.filter(Boolean).join(" ")), report.status(one.status)));
    });
    tabs.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      const next = model.cases[model.cases.indexOf(chosen) + step];
      if (next) { event.preventDefault(); focusTab = true; state.write({ case: next.id, model: null }, true); }
    });
    const detail = details[model.cases.indexOf(chosen)];
    root.replaceChildren(
      h("p", { class: "crumb" }, h("a", { href: "index.html" }, "Overview"), " / " + (model.family || "models")),
      h("h1", { title: model.name }, model.name),
      h("p", { class: "quiet" }, [model.task, model.architecture, detail.case.licence].filter(Boolean).join(" · ")),
      tabs,
      h("div", { class: "panel", role: "tabpanel", id: "panel", tabindex: "0", "aria-labelledby": "tab-" + chosen.index }, panel(chosen, detail, numbers)));
    if (focusTab) { focusTab = false; document.getElementById("tab-" + chosen.index).focus(); }
  }
  let focusTab = false;

  function panel(one, d, numbers) {
    // Stretches of the model entered the verdict as outputs of their own: folded, since they are many.
    const v = d.verdict, all = (d.comparison || {}).outputs || [], stretches = all.filter((o) => o.name.startsWith("module:")), outputs = all.filter((o) => !stretches.includes(o)), skipped = (d.comparison || {}).not_compared || [];
    const took = d.started ? (Date.parse(d.finished) - Date.parse(d.started)) / 1000 : null;
    return [
      h("p", { class: "sentence" }, report.status(one.status), " ", v.sentence),
      v.flags && v.flags.length ? h("p", {}, v.flags.map((flag) => h("span", { class: "tag" }, flag.replaceAll("_", " ")))) : null,
      evidence.facts([["Outcome", d.outcome.kind.replaceAll("_", " ") + (d.outcome.stage ? " in stage " + d.outcome.stage : "") + (d.outcome.signal ? ", " + d.outcome.signal : "")],
        ["Compared", v.tensors ? v.tensors + (v.tensors === 1 ? " tensor, " : " tensors, ") + v.elements.toLocaleString("en-US") + " elements" : "nothing"],
        ["Error ratio", one.ratio === null ? null : report.measured(one.ratio, report.readable(one.ratio, "× the control's"))],
        ["Ops on device", one.share === null ? null : report.percent(one.share)], ["Started", d.started ? report.time(d.started) : null], ["Took", took === null ? null : report.duration(took)]]),
      v.stale_expectation ? h("p", { class: "notice warning" }, "Expectation to remove: " + v.stale_expectation) : null,
      expectation(d), evidence.localization(d), reproducer(d), failure(d), history(one, numbers), evidence.findings(d),
      h("div", { class: "split" }, outputs.map((output) => [evidence.numbers(output), h("div", {}, evidence.steps(output), evidence.divergences(output))])),
      evidence.modules(d),
      stretches.length ? h("details", {}, h("summary", {}, "Numbers of the " + stretches.length + (stretches.length === 1 ? " module" : " modules") + " that entered the verdict"), h("div", { class: "split" }, stretches.map(evidence.numbers))) : null,
      skipped.length ? evidence.section("Not compared", h("ul", {}, skipped.map((text) => h("li", {}, text)))) : null,
      evidence.ops(d), evidence.roles(d), evidence.settings(d), evidence.artefacts(d),
      evidence.section("Run it yourself", evidence.copyable(d.commands.run), evidence.copyable(d.commands.localize), evidence.copyable(d.commands.repro)),
      inputs(d), attempts(d), environment(),
    ];
  }
  function expectation(d) {
    const e = d.case.expectation;
    if (!e) return d.case.excluded ? h("p", {}, "Excluded: " + d.case.excluded) : null;
    const link = e.issue && /^https?:\/\//.test(e.issue) ? h("a", { href: e.issue, rel: "noopener noreferrer" }, e.issue) : e.issue;
    return h("div", { class: "notice" }, "Expected " + e.outcome.replaceAll("_", " ") + ": " + e.reason + " ", link || null, e.expires ? " (expires " + e.expires + ")" : null);
  }
  function reproducer(d) {
    return d.reproducer ? [h("p", {}, h("a", { class: "button primary", href: d.reproducer.path, download: true }, "Download the reproducer (" + report.bytes(d.reproducer.size) + ")")),
      h("p", { class: "quiet" }, "It needs torch and the device alone, and ends with 1 while the defect is there:"), evidence.copyable(d.reproducer.command)] : null;
  }
  function failure(d) {
    const o = d.outcome;
    return [o.message && o.message !== d.verdict.sentence ? h("p", {}, o.message) : null,
      o.detail ? evidence.section("Detail", h("pre", { class: "block", tabindex: "0" }, o.detail)) : null,
      d.log ? evidence.section("Log", d.log.path ? h("p", {}, h("a", { href: d.log.path }, "Whole log"), " (" + report.bytes(d.log.size) + ")") : h("p", {}, report.bytes(d.log.size) + ", kept in the run directory"),
        d.log.text ? h("details", {}, h("summary", {}, "Excerpt"), h("pre", { class: "block", tabindex: "0" }, d.log.text)) : null) : null];
  }
  function history(one, numbers) {
    const letters = one.letters(), runs = report.site.runs;
    if (runs.length < 2) return null;
    const strip = h("div", { class: "history", role: "img", "aria-label": "Status by run, oldest first: " + [...letters].map((l) => report.STATUS[l]).join(", ") },
      [...letters].map((letter, at) => h("span", { class: report.STATUS[letter], title: runs[at].started.slice(0, 10) + ": " + report.STATUS[letter] }, letter)));
    const ratio = numbers.ratio.some((value) => value !== null);
    return evidence.section("History, " + runs.length + " runs", strip, ratio ? report.plot("Error ratio by run", "run", [{ label: "error ratio", values: numbers.ratio, colour: "--plot-candidate" }],
      { height: 180, name: (at) => runs[at].started.slice(0, 10), labels: (_, ticks) => ticks.map((tick) => (runs[tick] ? runs[tick].started.slice(5, 10) : "")) }) : null);
  }
  function inputs(d) {
    const texts = (d.case.inputs.texts || []).map((text) => h("pre", { class: "block", tabindex: "0" }, text));
    const ids = (d.case.inputs.ids || []).length ? h("pre", { class: "block", tabindex: "0" }, d.case.inputs.ids.map((row) => row.join(" ")).join("\n")) : null;
    return texts.length || ids ? evidence.section("Asked", texts, ids, d.case.inputs.decode_steps ? h("p", { class: "quiet" }, d.case.inputs.decode_steps + " teacher-forced decode steps") : null) : null;
  }
  function attempts(d) {
    if (!d.attempts || d.attempts.length < 2) return null;
    return evidence.section("Attempts", evidence.table("Attempts", [["#", "number"], ["Outcome"], ["Message"], ["Time", "number"]], d.attempts.map((a, at) => [String(at + 1), a.outcome.kind, a.outcome.message, report.duration(a.seconds)])));
  }
  function environment() {
    const e = report.site.runs[report.site.runs.length - 1].environment;
    const packages = evidence.table("Packages", [["Package"], ["Version"]], e.packages.map((p) => [p.name, p.version]));
    return evidence.section("Environment", evidence.facts([["Harness", e.harness_version], ["Commit", e.commit ? h("code", {}, e.commit) : null], ["Python", e.python], ["Platform", e.platform], ["Machine", e.machine], ["CPU", e.cpu],
      ["Memory", report.bytes(e.memory)], ["Workers", e.workers], ["Threads per case", e.threads_per_case], ...Object.entries(e.device).map(([key, value]) => ["Device " + key, value]), ...Object.entries(e.variables).map(([key, value]) => [key, h("code", {}, value)])]),
      h("details", {}, h("summary", {}, e.packages.length + " packages"), packages));
  }
  addEventListener("hashchange", show);
  await show();
};
