// Last script of each page: what every page does, then the page's own view.
"use strict";
report.themeButton();
report.localTimes(document);
for (const node of document.querySelectorAll(".tile .status")) node.prepend(report.icon(node.textContent.trim()));
if (["127.0.0.1", "localhost", "[::1]"].includes(location.hostname)) report.follow();
(function () {
  const view = report.views[document.body.dataset.page];
  if (!view) return;
  Promise.resolve().then(view).catch((error) => {
    document.getElementById("main").prepend(report.h("p", { class: "notice warning", role: "alert" }, "This view failed: " + error.message));
    throw error;
  });
})();
