// The first page: freshness by the reader's clock, and the matrix with its filter.
"use strict";
report.views["index.html"] = async function () {
  const { h } = report;
  const stale = document.getElementById("stale");
  const hours = (Date.now() - Date.parse(stale.dataset.since)) / 36e5;
  if (hours > Number(stale.dataset.hours)) {
    stale.textContent = "Stale: the newest run is " + (hours < 96 ? Math.round(hours) + " hours" : Math.round(hours / 24) + " days") + " old. A night may be missing.";
    stale.hidden = false;
  }
  const root = document.getElementById("matrix");
  if (!root) return;
  const world = await report.open();
  const box = h("div");
  const table = report.matrixTable(box, world);
  const bar = report.filterBar(world, table.filter);
  root.replaceChildren(bar.node, box);
  bar.start();
  for (const tile of document.querySelectorAll(".tile")) {
    tile.addEventListener("click", (event) => {
      event.preventDefault();
      report.state.write({ q: "status:" + tile.dataset.status.toLowerCase() }, true);
      document.getElementById("matrix-title").scrollIntoView({ block: "start" });
    });
  }
};
