"use strict";
(function () {
  // Tables that can be sorted get a button in each head; without script they are as they were written.
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    Array.from(table.tHead.rows[0].cells).forEach(function (th, column) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = th.textContent;
      th.textContent = "";
      th.append(button);
      button.addEventListener("click", function () {
        const down = th.getAttribute("aria-sort") === "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        th.setAttribute("aria-sort", down ? "descending" : "ascending");
        const number = th.classList.contains("num");
        const rows = Array.from(body.rows);
        rows.sort(function (a, b) {
          const x = a.cells[column].textContent, y = b.cells[column].textContent;
          const order = number ? (parseFloat(x) || 0) - (parseFloat(y) || 0) : x.localeCompare(y);
          return down ? -order : order;
        });
        body.append(...rows);
      });
    });
  }
  // The stepper walks through the changes of the memory map; the step is a part of the address.
  const rows = Array.from(document.querySelectorAll("#steps tbody tr"));
  if (rows.length === 0) return;
  const slider = document.getElementById("step"), told = document.getElementById("told");
  document.getElementById("stepper").hidden = false;
  slider.max = String(rows.length - 1);
  function show(n, move) {
    n = Math.min(Math.max(n, 0), rows.length - 1);
    for (const r of rows) r.classList.remove("here");
    rows[n].classList.add("here");
    if (move) rows[n].scrollIntoView({ block: "nearest" });
    slider.value = String(n);
    told.textContent = "Step " + n + " of " + (rows.length - 1) + ": " + rows[n].cells[2].textContent;
    if (move) history.replaceState(null, "", "#step-" + n);
  }
  slider.addEventListener("input", function () { show(Number(slider.value), true); });
  document.getElementById("back").addEventListener("click", function () { show(Number(slider.value) - 1, true); });
  document.getElementById("on").addEventListener("click", function () { show(Number(slider.value) + 1, true); });
  const at = /^#step-(\d+)$/.exec(location.hash);
  show(at ? Number(at[1]) : 0, Boolean(at));
  window.addEventListener("hashchange", function () {
    const m = /^#step-(\d+)$/.exec(location.hash);
    if (m) show(Number(m[1]), true);
  });
})();
