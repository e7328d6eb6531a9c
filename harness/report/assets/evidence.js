// The parts of a case's panel: findings, numbers, per-step errors, ops by state, artefacts, environment.
"use strict";
report.evidence = (function () {
  const { h, readable, measured, percent, bytes, duration } = report;
  const present = (value) => value !== null && value !== undefined && value !== "" && !(Array.isArray(value) && !value.length);

  function facts(pairs) {
    const kept = pairs.filter(([, value]) => present(value));
    return kept.length ? h("dl", { class: "facts" }, kept.map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value)))) : null;
  }
  // A longer table scrolls in a box of its own, under its head.
  const LONG = 20;
  function table(caption, heads, lines) {
    return h("div", { class: lines.length > LONG ? "scroll tall" : "scroll", tabindex: "0", role: "region", "aria-label": caption }, h("table", {}, h("caption", { class: "visually-hidden" }, caption),
      h("thead", {}, h("tr", {}, heads.map(([text, kind]) => h("th", { scope: "col", class: kind }, text)))),
      h("tbody", {}, lines.map((cells) => h("tr", {}, cells.map((cell, at) => h("td", { class: heads[at][1] }, cell)))))));
  }
  const section = (title, ...parts) => { const kept = parts.flat().filter(present); return kept.length ? h("section", {}, h("h3", {}, title), kept) : null; };

  function findings(d) {
    const found = d.verdict.findings || [];
    if (!found.length) return null;
    const lines = found.map((f) => [f.metric.replaceAll("_", " "), f.output, measured(f.value), measured(f.limit),
      h("span", { class: "status " + (f.within ? "PASS" : "FAIL") }, report.icon(f.within ? "PASS" : "FAIL"), f.within ? "within" : "outside"), f.where || ""]);
    return section("What the verdict measured", table("Findings", [["Limit"], ["Output"], ["Measured", "number"], ["Limit", "number"], ["Result"], ["Worst at"]], lines));
  }

  const ROWS = [["relative_l2", "relative L2 error"], ["max_abs", "max |difference|"], ["mean_abs", "mean |difference|"], ["cosine", "cosine"], ["pearson", "Pearson"],
    ["mismatches", "elements beyond probe tolerance"], ["ulp_median", "ULP, median"], ["ulp_p99", "ULP, 99th percentile"], ["ulp_max", "ULP, max"],
    ["scale", "least-squares scale"], ["offset", "least-squares offset"], ["minimum_tolerance", "smallest tolerance that holds"], ["nonfinite_mismatches", "NaN or inf on one side only"]];
  const LOGITS = [["kl_mean", "KL divergence, mean (nats)"], ["kl_max", "KL divergence, max (nats)"], ["top1_agreements", "same top token, positions"], ["top5_overlap", "top-5 overlap"],
    ["margin_median", "reference margin, median"], ["divergent", "positions with another top token"]];
  function numbers(output) {
    const a = output.candidate || {}, census_of = (side) => output[side + "_census"] || {}, b = output.control || {}, p = output.candidate_logits || {}, q = output.control_logits || {};
    const lines = [...ROWS.map(([key, label]) => [label, a[key], b[key]]), ...LOGITS.map(([key, label]) => [label, p[key], q[key]])].filter((line) => present(line[1]) || present(line[2]));
    const census = [["nan", "NaN"], ["positive_infinity", "+inf"], ["negative_infinity", "-inf"], ["saturated", "saturated"], ["zeros", "zeros"]]
      .map(([key, label]) => [label, census_of("candidate")[key], census_of("control")[key]]).filter((line) => line[1] || line[2]);
    const shape = output.shape.join("×") || "scalar";
    if (output.mismatch) return section(output.name, h("p", {}, "Not compared: " + output.mismatch));
    return section("Output " + output.name + ", " + shape + ", " + output.elements.toLocaleString("en-US") + " elements",
      table("Numbers of output " + output.name, [["Against the float32 reference"], ["Candidate", "number"], ["Control", "number"]],
        [...lines, ...census].map(([label, ours, theirs]) => [label, measured(ours), measured(theirs)])));
  }
  function steps(output) {
    const ours = (output.candidate_logits || {}).relative_l2_by_step || [], theirs = (output.control_logits || {}).relative_l2_by_step || [];
    if (ours.length < 2) return null;
    return report.plot("Relative L2 error per position: " + output.name, "position", [
      { label: "candidate", values: ours, colour: "--plot-candidate" }, { label: "control", values: theirs.length ? theirs : ours.map(() => null), colour: "--plot-control", dash: [4, 4] }], { log: true });
  }
  function divergences(output) {
    const found = (output.candidate_logits || {}).divergences || [];
    if (!found.length) return null;
    const lines = found.map((d) => [d.position.join(", "), String(d.reference_token), String(d.other_token), measured(d.reference_margin), measured(d.error_at_pair), measured(d.ulp),
      d.reference_margin <= d.error_at_pair ? h("span", { class: "tag" }, "near tie") : ""]);
    return section("Positions with another top token", table("Divergences", [["Position"], ["Reference token", "number"], ["Candidate token", "number"], ["Reference margin", "number"], ["Error at the pair", "number"], ["1 ULP", "number"], [""]], lines));
  }

  const operand = (o) => h("span", { title: "strides " + o.strides.join(", ") }, "[" + o.shape.join(", ") + "] " + o.dtype);
  const STATES = ["spyre_failed", "not_implemented", "cpu_fallback", "spyre_enabled"];
  const candidate = (d) => (d.observations || {}).candidate || {};

  function ops(d) {
    const device = candidate(d).device;
    if (!device) return null;
    const total = device.ops_on_device + device.fallbacks, share = total ? device.ops_on_device / total : null;
    const meter = h("div", { class: "meter", role: "img", "aria-label": percent(share) + " of op calls on the device" });
    for (const [state, count] of [["spyre_enabled", device.ops_on_device], ["cpu_fallback", device.fallbacks]]) {
      const part = h("span", { class: state });
      part.style.width = (total ? (100 * count) / total : 0) + "%";
      meter.append(part);
    }
    const uses = [...device.ops].sort((a, b) => STATES.indexOf(a.state) - STATES.indexOf(b.state) || b.count - a.count);
    const counts = STATES.map((state) => [state, uses.filter((use) => use.state === state).length]).filter(([, count]) => count);
    const select = h("select", { "aria-label": "Op state" }, h("option", { value: "" }, "all states"), counts.map(([state, count]) => h("option", { value: state }, state + " (" + count + ")")));
    const box = h("div");
    const show = () => box.replaceChildren(table("Ops", [["Op"], ["State"], ["Calls", "number"], ["Operands"]], uses.filter((use) => !select.value || use.state === select.value)
      .map((use) => [h("a", { class: "mono", href: "ops.html#op=" + encodeURIComponent(use.op) }, use.op), h("span", { class: "state " + use.state }, use.state), use.count.toLocaleString("en-US"), h("span", { class: "mono" }, use.operands.map((one, at) => [at ? ", " : "", operand(one)]))])));
    select.addEventListener("change", show);
    show();
    return section("Ops: " + percent(share) + " of " + total.toLocaleString("en-US") + " calls on the device", meter, compiled(device.compiled), adapter(device.replaced), h("div", { class: "bar" }, select), box,
      uses.length >= 400 ? h("p", { class: "quiet" }, "The 400 most troublesome variants; all of them are in ops.parquet of the run.") : null);
  }
  // Ops in an equivalent form: what the field calls the model's adapter.
  function adapter(replaced) {
    if (!replaced) return null;
    const names = Object.entries(replaced);
    return h("p", {}, "Run in an equivalent form: ", names.length ? names.map(([op, kind], at) => [at ? ", " : "", h("a", { class: "mono", href: "ops.html#op=" + encodeURIComponent(op) }, op), " (" + kind + ")"]) : "no op", ".");
  }
  function compiled(c) {
    return c ? facts([["Graphs", c.graphs], ["Graph breaks", c.graph_breaks], ["Recompiles", c.recompiles], ["Plan steps", c.plan_steps + " (" + c.fallback_steps + " fallback)"],
      ["Padding", bytes(c.padded_bytes)], ["Restickifies", c.restickifies], ["Compile time", duration(c.seconds)]]) : null;
  }

  function artefacts(d) {
    const c = d.checkpoint;
    if (!c) return section("Checkpoint", facts([["Origin", h("code", {}, d.origin || "unknown")]]));
    const files = table("Files", [["File"], ["Size", "number"], ["sha256"]], c.files.map((f) => [f.name, bytes(f.size), h("code", {}, f.sha256)]));
    return section("Checkpoint", facts([["Origin", h("code", {}, d.origin)], ["Format", c.format + (c.allow_pickle ? " (pickle allowed)" : "")], ["Stored dtype", c.stored_dtype],
      ["Architecture", c.architecture], ["Parameters", c.parameters ? c.parameters.toLocaleString("en-US") : null], ["Licence", d.case.licence], ["Digest", h("code", {}, c.digest)]]),
      h("details", {}, h("summary", {}, c.files.length + (c.files.length === 1 ? " file" : " files")), files));
  }
  function roles(d) {
    const lines = Object.entries(d.observations || {}).map(([role, o]) => [role, o.target, o.mode, o.dtype, String(o.threads), duration(Object.values(o.seconds).reduce((a, b) => a + report.number(b), 0)),
      bytes(o.peak_memory), (o.cached ? ["cached"] : []).concat(o.drills.map((d) => "drill: " + d), o.notes).join("; ")]);
    return lines.length ? section("Who ran", table("Observations", [["Role"], ["Target"], ["Mode"], ["Dtype"], ["Threads", "number"], ["Time", "number"], ["Peak memory", "number"], ["Notes"]], lines)) : null;
  }
  function copyable(text) {
    const button = h("button", { type: "button", onclick: () => navigator.clipboard.writeText(text).then(() => { button.textContent = "Copied"; }, () => { getSelection().selectAllChildren(code); }) }, "Copy");
    const code = h("code", { tabindex: "0" }, text);
    return h("div", { class: "copy" }, code, button);
  }
  function settings(d) {
    const limits = Object.entries(d.verdict.tolerance || {}).filter(([key]) => key !== "reason").map(([key, value]) => [key.replaceAll("_", " "), measured(value)]);
    const pairs = Object.entries((candidate(d).device || {}).configuration || {});
    const why = (d.case.tolerance || {}).reason;
    return [limits.length ? section("Tolerances in force", facts(limits), why ? h("p", {}, "Relaxed: " + why) : null) : null,
      pairs.length ? section("Device settings", facts(pairs)) : null];
  }
  // The first wrong module and op of a failing case.
  function localization(d) {
    const l = d.localization;
    if (!l) return null;
    const op = l.op, module = l.module;
    return section("Where it first goes wrong", h("p", {}, l.sentence), facts([
      ["Op", op ? h("a", { class: "mono", href: "ops.html#op=" + encodeURIComponent(op.op) }, op.op) : null], ["Operands", op && op.operands ? h("span", { class: "mono" }, op.operands.map((one, at) => [at ? ", " : "", operand(one)])) : null],
      ["Op error", op && present(op.relative_l2) ? measured(op.relative_l2) : null], ["Control's error at the op", op && present(op.control) ? measured(op.control) : null], ["Raised", op ? op.error : null],
      ["Module", module ? h("span", { class: "mono" }, module.name) : null], ["Module error", module && present(module.relative_l2) ? measured(module.relative_l2) : null], ["Control's error at the module", module && present(module.control) ? measured(module.control) : null],
      ["Cause", l.cause], ["Parameter", l.parameter], ["Modules out of proportion", l.modules_wrong]]));
  }
  // The error that each module adds by itself, in order of execution.
  function modules(d) {
    const errors = ((d.modules || (d.localization || {}).evidence || {}).errors || []).filter((one) => present(one.relative_l2));
    if (errors.length < 2) return null;
    const worst = [...errors].sort((a, b) => report.number(b.relative_l2) - report.number(a.relative_l2)).slice(0, 8);
    return section("Error that each module adds by itself", report.plot("Relative L2 error per module, in order of execution", "module", [
      { label: "candidate", values: errors.map((one) => one.relative_l2), colour: "--plot-candidate" }, { label: "control", values: errors.map((one) => (present(one.control) ? one.control : null)), colour: "--plot-control", dash: [4, 4] }], { log: true, name: (at) => errors[at].name }),
      h("details", {}, h("summary", {}, "Largest"), table("Modules with the largest error", [["Module"], ["Call", "number"], ["Candidate", "number"], ["Control", "number"]],
        worst.map((one) => [h("span", { class: "mono" }, one.name), String(one.call || 0), measured(one.relative_l2), measured(one.control)]))));
  }
  return { localization, modules, facts, table, section, findings, numbers, steps, divergences, ops, artefacts, roles, copyable, settings, present };
})();
