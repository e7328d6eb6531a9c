// Two to N runs side by side: newly failing, newly passing, moved inside pass, other environments.
"use strict";
report.views["compare.html"] = async function () {
  const { h, state } = report;
  const world = await report.open();
  const root = document.getElementById("view");
  const runs = report.site.runs;
  const gone = await report.load("gone");
  const BAD = "FEXN", MOVED = 1.25;
  if (runs.length < 2) { root.replaceChildren(h("p", {}, "There is only one run: nothing to compare.")); return; }

  function chosen() {
    const ids = (state.read().get("runs") || "").split(",").filter(Boolean);
    const places = ids.map((id) => runs.findIndex((run) => run.id === id)).filter((place) => place >= 0);
    return places.length >= 2 ? [...new Set(places)].sort((a, b) => a - b) : [runs.length - 2, runs.length - 1];
  }
  // All cases of all runs: those of the newest first, as in the columns of the runs.
  const all = [...world.cases.map((one) => ({ id: one.id, link: one.link, letters: one.letters() })), ...gone.ids.map((id, at) => ({ id, link: null, letters: report.unpacked(gone.history[at]).letters }))];

  function picker(places) {
    const box = h("fieldset", { class: "runs" }, h("legend", {}, "Runs, at least two"));
    [...runs].reverse().forEach((run, back) => {
      const place = runs.length - 1 - back;
      const check = h("input", { type: "checkbox", value: run.id, onchange: () => {
        const ids = [...box.querySelectorAll("input:checked")].map((node) => node.value);
        if (ids.length >= 2) state.write({ runs: ids.reverse().join(",") }, true);
      } });
      check.checked = places.includes(place);
      box.append(h("label", {}, check, " ", run.started.slice(0, 16).replace("T", " ") + " UTC", h("span", { class: "quiet" }, " " + (run.environment.commit || "").slice(0, 8) + (run.complete ? "" : " incomplete"))));
    });
    return h("details", { class: "picker" }, h("summary", {}, "Choose runs (" + places.length + " of " + runs.length + ")"), box);
  }

  function differences(places) {
    const flat = (e) => ({ Python: e.python, Platform: e.platform, CPU: e.cpu, Cores: String(e.cores), Harness: e.harness_version, Commit: e.commit || "", "Threads per case": String(e.threads_per_case),
      ...Object.fromEntries(e.packages.map((p) => ["package " + p.name, p.version])), ...Object.fromEntries(Object.entries(e.device).map(([k, v]) => ["device " + k, v])), ...Object.fromEntries(Object.entries(e.variables).map(([k, v]) => ["variable " + k, v])) });
    const sides = places.map((place) => flat(runs[place].environment));
    const names = [...new Set(sides.flatMap((side) => Object.keys(side)))].filter((name) => new Set(sides.map((side) => side[name])).size > 1);
    if (!names.length) return h("p", { class: "quiet" }, "The environments recorded are equal.");
    return grid("Environment differences", places, names.map((name) => [name, ...sides.map((side) => side[name] === undefined ? "absent" : side[name])]), "What");
  }
  const title = (place) => runs[place].started.slice(0, 10);
  function grid(label, places, lines, what) {
    return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, what || "Case"), places.map((place) => h("th", { scope: "col", title: runs[place].id }, title(place))))),
      h("tbody", {}, lines.map(([head, ...cells]) => h("tr", {}, h("th", { scope: "row" }, head), cells.map((cell) => h("td", {}, cell)))))));
  }

  async function draw() {
    const places = chosen(), first = places[0], last = places[places.length - 1];
    const columns = await Promise.all(places.map(async (place) => ({ ratio: report.column((await report.load("run-" + place)).ratio) })));
    const ratio = (at, side) => report.number(columns[side].ratio[at]);
    const groups = { "Newly failing": [], "Newly passing": [], "Moved inside pass": [], "Other status": [], "Only in some runs": [] };
    all.forEach((one, at) => {
      const a = one.letters[first], b = one.letters[last];
      if (places.every((place) => one.letters[place] === "-")) return;
      if (places.some((place) => one.letters[place] === "-")) groups["Only in some runs"].push(at);
      else if (!BAD.includes(a) && BAD.includes(b)) groups["Newly failing"].push(at);
      else if (BAD.includes(a) && !BAD.includes(b)) groups["Newly passing"].push(at);
      else if (places.some((place) => one.letters[place] !== a)) groups["Other status"].push(at);
      else if (a === "P") {
        const x = ratio(at, 0), y = ratio(at, places.length - 1);
        if (x !== null && y !== null && (y > x * MOVED || x > y * MOVED || Number.isNaN(y) !== Number.isNaN(x))) groups["Moved inside pass"].push(at);
      }
    });
    groups["Moved inside pass"].sort((a, b) => ratio(b, places.length - 1) / ratio(b, 0) - ratio(a, places.length - 1) / ratio(a, 0));
    const LIMIT = 200;
    const cell = (at, side) => { const letter = all[at].letters[places[side]], value = columns[side].ratio[at]; return [report.status(report.STATUS[letter] === "ABSENT" ? "ABSENT" : report.STATUS[letter]), value === null ? "" : h("span", { class: "beside", title: "error ratio " + value }, report.readable(value, "×"))]; };
    const head = (at) => (all[at].link ? h("a", { class: "mono", href: all[at].link, title: all[at].id }, all[at].id) : h("span", { class: "mono" }, all[at].id));
    const sections = Object.entries(groups).map(([name, members]) => h("section", { "data-group": name }, h("h2", {}, name, " ", h("span", { class: "count" }, members.length.toLocaleString("en-US"))),
      name === "Moved inside pass" ? h("p", { class: "quiet" }, "Error ratio changed by more than 25 %, worse first.") : null,
      members.length ? grid(name, places, members.slice(0, LIMIT).map((at) => [head(at), ...places.map((_, side) => cell(at, side))])) : h("p", { class: "quiet" }, "None."),
      members.length > LIMIT ? h("p", { class: "quiet" }, "The first " + LIMIT + "; the export has all.") : null));
    const lines = Object.entries(groups).flatMap(([name, members]) => members.map((at) => [name, all[at].id, ...places.map((place) => report.STATUS[all[at].letters[place]]), ...places.map((_, side) => columns[side].ratio[at])]));
    const quoted = (value) => { const text = value === null ? "" : String(value); return /[",\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text; };
    const csv = h("button", { type: "button", class: "button", onclick: () => report.save("compare-" + places.map((place) => runs[place].id).join("-") + ".csv", "text/csv",
      [["group", "case", ...places.map((place) => "status " + runs[place].id), ...places.map((place) => "error_ratio " + runs[place].id)], ...lines].map((row) => row.map(quoted).join(",")).join("\n") + "\n") }, "CSV");
    root.replaceChildren(
      h("div", { class: "bar" }, h("span", { class: "shown", role: "status" }, groups["Newly failing"].length + " newly failing, " + groups["Newly passing"].length + " newly passing between " + title(first) + " and " + title(last)), csv),
      picker(places), ...sections, h("section", {}, h("h2", {}, "Environment differences"), differences(places)));
  }
  addEventListener("hashchange", draw);
  await draw();
};
