/* Long tables: sorted by a click on a heading, filtered by a word. Without this they are plain tables. */
(() => {
  "use strict";

  function sortable(box) {
    const table = box.querySelector("table");
    const body = table.tBodies[0];
    const rows = [...body.rows];
    const headings = [...table.tHead.rows[0].cells];
    let column = -1;
    let sign = 1;

    const value = row => row.cells[column].dataset.value;
    function compare(one, other) {
      const a = value(one);
      const b = value(other);
      if (!a || !b) return !a - !b; // what is missing comes last, whichever way one sorts
      const [x, y] = [Number(a), Number(b)];
      const words = Number.isNaN(x) || Number.isNaN(y);
      return sign * (words ? a.localeCompare(b, undefined, { numeric: true }) : x - y);
    }

    headings.forEach((heading, number) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        sign = column === number ? -sign : 1;
        column = number;
        for (const each of headings) each.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
        body.append(...[...rows].sort(compare));
      });
    });

    const tools = document.createElement("div");
    const label = document.createElement("label");
    const field = document.createElement("input");
    const count = document.createElement("output");
    tools.className = "companion-filter";
    field.type = "search";
    field.placeholder = 'words, or "a phrase"';
    label.append("Filter ", field);
    tools.append(label, count);
    box.before(tools);
    const texts = rows.map(row => row.textContent.toLowerCase());
    function filter() {
      const words = [...field.value.toLowerCase().matchAll(/"([^"]+)"|[^\s"]+/g)].map(match => match[1] || match[0]);
      let left = 0;
      rows.forEach((row, number) => {
        row.hidden = !words.every(word => texts[number].includes(word));
        left += !row.hidden;
      });
      count.value = `${left} of ${rows.length} rows`;
    }
    field.addEventListener("input", filter);
    filter();
    box.tabIndex = 0; // so that the keyboard can scroll it
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", box.dataset.caption);
  }

  const start = () => document.querySelectorAll(".companion-sortable").forEach(sortable);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
