// Runs over time: counts, duration and cache, accuracy, a heatmap of what needs attention, one case's numbers.
"use strict";
report.views["trends.html"] = async function () {
  const { h, state } = report;
  const world = await report.open();
  const root = document.getElementById("view");
  const runs = report.site.runs;
  const changes = await report.load("changes");
  const name = (at) => runs[at].started.slice(0, 10);
  const day = (_, ticks) => ticks.map((tick) => (runs[tick] ? runs[tick].started.slice(5, 10) : ""));
  const line = (label, values, colour, dash) => ({ label, values, colour, dash });
  const count = (status) => runs.map((run) => run.counts[status] || 0);

  function heatmap() {
    const families = [...new Set(world.models.map((model) => model.family))];
    const key = state.read().get("by") === "model" ? "model" : "family";
    const names = key === "model" ? world.models.map((model) => model.name) : families;
    const bad = new Map(names.map((name) => [name, runs.map(() => [0, 0])]));
    for (const one of world.cases) {
      const cells = bad.get(key === "model" ? one.model.name : one.model.family), letters = one.letters();
      for (let at = 0; at < runs.length; at += 1) {
        if (letters[at] === "-") continue;
        cells[at][1] += 1;
        if ("FEXN".includes(letters[at])) cells[at][0] += 1;
      }
    }
    const ranked = [...bad].map(([name, cells]) => [name, cells, cells.reduce((sum, [x], at) => sum + x * (at + 1), 0)]).sort((a, b) => b[2] - a[2] || (a[0] < b[0] ? -1 : 1)).slice(0, 60);
    const link = (name) => "matrix.html#q=" + encodeURIComponent(key + ':"' + name + '"');
    const body = ranked.map(([name, cells]) => h("tr", {}, h("th", { scope: "row" }, h("a", { href: link(name) }, name || "no family")), cells.map(([x, all], at) => {
      const level = all === 0 ? "none" : x === 0 ? "l0" : x / all < 0.05 ? "l1" : x / all < 0.25 ? "l2" : "l3";
      return h("td", { class: "heat " + level, title: runs[at].started.slice(0, 10) + ": " + (all ? x + " of " + all + " need attention" : "not tested") }, all === 0 ? "–" : x ? String(x) : h("span", { class: "visually-hidden" }, "0"));
    })));
    const select = h("select", { "aria-label": "Rows of the heatmap", onchange: (event) => { state.write({ by: event.target.value === "family" ? null : event.target.value }); render(); } },
      h("option", { value: "family" }, "by family"), h("option", { value: "model" }, "by model, worst 60"));
    select.value = key;
    return [h("div", { class: "bar" }, select, h("span", { class: "shown" }, "Number of cases that need attention (FAIL, ERROR, XPASS, NOTRUN); most recent trouble on top")),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Heatmap of cases that need attention" }, h("table", { class: "heatmap" },
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, ""), runs.map((run) => h("th", { scope: "col", title: run.id }, run.started.slice(5, 10))))), h("tbody", {}, body)))];
  }

  async function series() {
    const box = h("div"), id = state.read().get("case") || "";
    const input = h("input", { type: "search", list: "case-names", placeholder: "A case: type a part of its id", "aria-label": "Case to plot", autocomplete: "off", spellcheck: "false" });
    const names = h("datalist", { id: "case-names" });
    input.value = id;
    input.addEventListener("input", () => {
      const text = input.value.toLowerCase(), found = [];
      for (const one of world.cases) { if (one.id.toLowerCase().includes(text)) found.push(one.id); if (found.length > 20) break; }
      names.replaceChildren(...found.map((value) => h("option", { value })));
      if (found.includes(input.value)) { state.write({ case: input.value }); plot(box, input.value); }
    });
    if (id) await plot(box, id);
    return [h("div", { class: "bar" }, input, names), box];
  }
  async function plot(box, id) {
    const one = world.cases.find((c) => c.id === id);
    if (!one) { box.replaceChildren(h("p", {}, "The newest run holds no case ", h("code", {}, id))); return; }
    const numbers = await report.numbersOverTime(one);
    const steps = changes.filter((change) => change[0] === id && change[1] === "drifted");
    box.replaceChildren(h("p", {}, h("a", { href: one.link }, one.id)),
      h("ul", {}, steps.map((step) => h("li", {}, h("span", { class: "tag" }, "step"), runs[step[4]].started.slice(0, 10) + ": " + step[6]))),
      h("div", { class: "split" }, report.plot("Error ratio (units of the control's error)", "run", [line("error ratio", numbers.ratio, "--plot-candidate")], { labels: day, name, marks: steps.map((step) => step[4]) }),
        report.plot("Time per case (s)", "run", [line("seconds", numbers.seconds, "--plot-candidate")], { labels: day, name }),
        report.plot("Share of op calls on the device", "run", [line("share", numbers.share, "--plot-candidate")], { labels: day, name })));
  }

  function table() {
    const line = (run) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, run.id)), h("td", {}, report.time(run.started)), h("td", { class: "wrap" }, run.sentence, run.complete ? null : h("span", { class: "tag" }, "incomplete")),
      h("td", { class: "number" }, report.duration(run.seconds)), h("td", { class: "number" }, run.computed + run.cached ? report.percent(run.cached / (run.computed + run.cached)) : "–"), h("td", {}, run.environment.commit ? h("code", {}, run.environment.commit.slice(0, 8)) : "–"));
    return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs" }, h("table", {}, h("thead", {}, h("tr", {}, ["Run", "Started", "Verdict"].map((text) => h("th", { scope: "col" }, text)), ["Case time", "From cache"].map((text) => h("th", { scope: "col", class: "number" }, text)), h("th", { scope: "col" }, "Commit"))),
      h("tbody", {}, [...runs].reverse().map(line))));
  }

  async function render() {
    const regressions = changes.filter((change) => change[2] === "worse").sort((a, b) => b[3] - a[3]).slice(0, 100);
    root.replaceChildren(
      h("p", {}, runs.length + (runs.length === 1 ? " run" : " runs") + ". Subscribe to ", h("a", { href: "feed.xml" }, "the feed of regressions"), "."),
      h("div", { class: "split" },
        report.plot("Cases that need attention", "run", [line("FAIL", count("FAIL"), "--red"), line("ERROR", count("ERROR"), "--magenta", [6, 3]), line("NOTRUN", count("NOTRUN"), "--purple", [2, 3]), line("XPASS", count("XPASS"), "--orange", [8, 3, 2, 3])], { labels: day, name, whole: true }),
        report.plot("Coverage: cases that passed, and all", "run", [line("PASS", count("PASS"), "--green"), line("all", runs.map((run) => Object.values(run.counts).reduce((a, b) => a + b, 0)), "--plot-control", [4, 4])], { labels: day, name, whole: true }),
        report.plot("Median error ratio", "run", [line("median", runs.map((run) => run.median_ratio), "--plot-candidate")], { labels: day, name }),
        report.plot("Case time, all cases together (s)", "run", [line("seconds", runs.map((run) => run.seconds), "--plot-candidate")], { labels: day, name })),
      h("h2", {}, "Cases that need attention, by run"), ...heatmap(),
      h("h2", {}, "One case over time"), ...(await series()),
      h("h2", {}, "What got worse"),
      regressions.length ? h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "What got worse" }, h("table", {}, h("thead", {}, h("tr", {}, ["Run", "What", "Case", "Why"].map((text) => h("th", { scope: "col" }, text)))), h("tbody", {}, regressions.map(([id, kind, , run, , , sentence]) =>
        h("tr", {}, h("td", {}, runs[run].started.slice(0, 10)), h("td", {}, kind.replaceAll("_", " ")), h("td", {}, h("a", { class: "mono", href: "model.html#case=" + encodeURIComponent(id) }, id)), h("td", { class: "wrap" }, sentence)))))) : h("p", { class: "quiet" }, "Nothing."),
      h("h2", {}, "Runs"), table());
  }
  await render();
};
