// The parts of a case's panel: findings, numbers, per-step errors, ops by state, artefacts, environment.
"use strict";
report.evidence = (function () {
  const { h, readable, measured, percent, bytes, duration } = report;
  const present = (value) => value !== null && value !== undefined && value !== "" && !(Array.isArray(value) && !value.length);

  function facts(pairs) {
    const kept = pairs.filter(([, value]) => present(value));
    return kept.length ? h("dl", { class: "facts" }, kept.map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value)))) : null;
  }
  function table(caption, heads, lines) {
    return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, h("table", {}, h("caption", { class: "visually-hidden" }, caption),
      h("thead", {}, h("tr", {}, heads.map(([text, kind]) => h("th", { scope: "col", class: kind }, text)))),
      h("tbody", {}, lines.map((cells) => h("tr", {}, cells.map((cell, at) => h("td", { class: heads[at][1] }, cell)))))));
  }
  const section = (title, ...parts) => { const kept = parts.flat().filter(present); return kept.length ? h("section", {}, h("h3", {}, title), kept) : null; };

  function findings(one) {
    if (!one.findings.length) return null;
    const lines = one.findings.map((f) => [f.metric.replaceAll("_", " "), f.output, measured(f.value), measured(f.limit),
      h("span", { class: "status " + (f.within ? "PASS" : "FAIL") }, report.icon(f.within ? "PASS" : "FAIL"), f.within ? "within" : "outside"), f.where || ""]);
    return section("What the verdict measured", table("Findings", [["Limit"], ["Output"], ["Measured", "number"], ["Limit", "number"], ["Result"], ["Worst at"]], lines));
  }

  const ROWS = [["relative_l2", "relative L2 error"], ["max_abs", "max |difference|"], ["mean_abs", "mean |difference|"], ["cosine", "cosine"], ["pearson", "Pearson"],
    ["mismatches", "elements beyond probe tolerance"], ["ulp_median", "ULP, median"], ["ulp_p99", "ULP, 99th percentile"], ["ulp_max", "ULP, max"],
    ["scale", "least-squares scale"], ["offset", "least-squares offset"], ["minimum_tolerance", "smallest tolerance that holds"], ["nonfinite_mismatches", "NaN or inf on one side only"]];
  const LOGITS = [["kl_mean", "KL divergence, mean (nats)"], ["kl_max", "KL divergence, max (nats)"], ["top1_agreements", "same top token, positions"], ["top5_overlap", "top-5 overlap"],
    ["margin_median", "reference margin, median"], ["divergent", "positions with another top token"]];
  function numbers(output) {
    const a = output.candidate || {}, b = output.control || {}, p = output.candidate_logits || {}, q = output.control_logits || {};
    const lines = [...ROWS.map(([key, label]) => [label, a[key], b[key]]), ...LOGITS.map(([key, label]) => [label, p[key], q[key]])].filter((line) => present(line[1]) || present(line[2]));
    const census = [["nan", "NaN"], ["positive_infinity", "+inf"], ["negative_infinity", "-inf"], ["saturated", "saturated"], ["zeros", "zeros"]]
      .map(([key, label]) => [label, output.candidate_census[key], output.control_census[key]]).filter((line) => line[1] || line[2]);
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

  const operand = ([shape, strides, dtype]) => h("span", { title: "strides " + strides.join(", ") }, "[" + shape.join(", ") + "] " + dtype);
  function ops(one) {
    const device = one.device;
    if (!device) return null;
    const total = device.ops_on_device + device.fallbacks;
    const meter = h("div", { class: "meter", role: "img", "aria-label": percent(device.share) + " of op calls on the device" });
    for (const [state, count] of [["spyre_enabled", device.ops_on_device], ["cpu_fallback", device.fallbacks]]) {
      const part = h("span", { class: state });
      part.style.width = (total ? (100 * count) / total : 0) + "%";
      meter.append(part);
    }
    const states = {};
    for (const [, state] of one.ops) states[state] = (states[state] || 0) + 1;
    const select = h("select", { "aria-label": "Op state" }, h("option", { value: "" }, "all states"), Object.keys(states).map((state) => h("option", { value: state }, state + " (" + states[state] + ")")));
    const box = h("div");
    const show = () => box.replaceChildren(table("Ops", [["Op"], ["State"], ["Calls", "number"], ["Operands"]], one.ops.filter(([, state]) => !select.value || state === select.value)
      .map(([op, state, count, operands]) => [h("span", { class: "mono" }, op), h("span", { class: "state " + state }, state), count.toLocaleString("en-US"), h("span", { class: "mono" }, operands.map((one, at) => [at ? ", " : "", operand(one)]))])));
    select.addEventListener("change", show);
    show();
    const more = one.op_variants > one.ops.length ? h("p", { class: "quiet" }, one.ops.length + " of " + one.op_variants + " variants shown, the most troublesome first.") : null;
    return section("Ops: " + percent(device.share) + " of " + total.toLocaleString("en-US") + " calls on the device", meter, compiled(device.compiled), h("div", { class: "bar" }, select), box, more);
  }
  function compiled(c) {
    return c ? facts([["Graphs", c.graphs], ["Graph breaks", c.graph_breaks], ["Recompiles", c.recompiles], ["Plan steps", c.plan_steps + " (" + c.fallback_steps + " fallback)"],
      ["Padding", bytes(c.padded_bytes)], ["Restickifies", c.restickifies], ["Compile time", duration(c.seconds)]]) : null;
  }

  function artefacts(one) {
    const c = one.checkpoint;
    if (!c) return section("Checkpoint", facts([["Origin", h("code", {}, one.origin || "unknown")]]));
    const files = table("Files", [["File"], ["Size", "number"], ["sha256"]], c.files.map((f) => [f.name, bytes(f.size), h("code", {}, f.sha256)]));
    return section("Checkpoint", facts([["Origin", h("code", {}, one.origin)], ["Format", c.format + (c.allow_pickle ? " (pickle allowed)" : "")], ["Stored dtype", c.stored_dtype],
      ["Architecture", c.architecture], ["Parameters", c.parameters ? c.parameters.toLocaleString("en-US") : null], ["Licence", one.licence], ["Digest", h("code", {}, c.digest)]]),
      h("details", {}, h("summary", {}, c.files.length + (c.files.length === 1 ? " file" : " files")), files));
  }
  function roles(one) {
    const lines = Object.entries(one.observations).map(([role, o]) => [role, o.target, o.mode, o.dtype, String(o.threads), duration(Object.values(o.seconds).reduce((a, b) => a + report.number(b), 0)),
      bytes(o.peak_memory), (o.cached ? ["cached"] : []).concat(o.drills.map((d) => "drill: " + d), o.notes).join("; ")]);
    return lines.length ? section("Who ran", table("Observations", [["Role"], ["Target"], ["Mode"], ["Dtype"], ["Threads", "number"], ["Time", "number"], ["Peak memory", "number"], ["Notes"]], lines)) : null;
  }
  function copyable(text) {
    const button = h("button", { type: "button", onclick: () => navigator.clipboard.writeText(text).then(() => { button.textContent = "Copied"; }, () => { getSelection().selectAllChildren(code); }) }, "Copy");
    const code = h("code", { tabindex: "0" }, text);
    return h("div", { class: "copy" }, code, button);
  }
  function settings(one) {
    const limits = Object.entries(one.tolerance || {}).filter(([key]) => key !== "reason").map(([key, value]) => [key.replaceAll("_", " "), measured(value)]);
    const pairs = Object.entries((one.device || {}).configuration || {});
    return [limits.length ? section("Tolerances in force", facts(limits), one.relaxed && one.relaxed.reason ? h("p", {}, "Relaxed: " + one.relaxed.reason) : null) : null,
      pairs.length ? section("Device settings", facts(pairs)) : null];
  }
  return { facts, table, section, findings, numbers, steps, divergences, ops, artefacts, roles, copyable, settings, present };
})();
