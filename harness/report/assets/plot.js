// Lines over an index with uPlot, in the colours of the theme; drawn again when the theme changes.
"use strict";
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5];
report.plot = function (title, axis, series, options) {
  const { h } = report;
  options = options || {};
  const box = h("div", { class: "plot", role: "img", "aria-label": title });
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  let chart = null;
  const finite = (value) => { value = report.number(value); return Number.isFinite(value) && (!options.log || value > 0) ? value : null; };
  function draw() {
    if (chart) chart.destroy();
    const grid = { stroke: colour("--border"), width: 1 }, ink = colour("--text-secondary");
    const font = "12px " + colour("--sans");
    const some = series.some((one) => one.values.some((value) => finite(value) !== null));
    chart = new uPlot({
      title, width: Math.max(280, box.clientWidth - 16), height: options.height || 220,
      scales: { x: { time: false }, y: options.log && some ? { distr: 3 } : {} },
      axes: [{ stroke: ink, grid, font, ticks: grid, label: axis, labelFont: font, values: options.labels },
        { stroke: ink, grid, font, ticks: grid, size: 64, ...(options.whole ? { incrs: WHOLE } : {}), values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : report.readable(tick))) }],
      series: [{ label: axis, value: (_, at) => (at === null ? "–" : options.name ? options.name(at) : String(at)) }, ...series.map((one) => ({
        label: one.label, stroke: colour(one.colour), width: 1.5, dash: one.dash, points: { show: one.values.length < 40, size: 5 },
        value: (_, value) => (value === null ? "–" : report.readable(value)),
      }))],
      hooks: { draw: [(plot) => {
        // Detected steps as vertical lines.
        for (const at of options.marks || []) {
          const x = plot.valToPos(at, "x", true);
          plot.ctx.save();
          plot.ctx.strokeStyle = colour("--plot-limit");
          plot.ctx.setLineDash([4, 4]);
          plot.ctx.beginPath();
          plot.ctx.moveTo(x, plot.bbox.top);
          plot.ctx.lineTo(x, plot.bbox.top + plot.bbox.height);
          plot.ctx.stroke();
          plot.ctx.restore();
        }
      }] },
    }, [series[0].values.map((_, index) => index), ...series.map((one) => one.values.map(finite))], box);
  }
  requestAnimationFrame(draw);
  document.addEventListener("themechange", draw);
  let width = 0;
  new ResizeObserver(() => { if (chart && box.clientWidth !== width) { width = box.clientWidth; chart.setSize({ width: Math.max(280, width - 16), height: options.height || 220 }); } }).observe(box);
  return box;
};
