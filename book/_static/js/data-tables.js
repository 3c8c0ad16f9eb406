/* The table below each figure: made of the figure's rows when it is first opened, filtered by words. */
(() => {
  "use strict";

  const MOST_ROWS = 200; // drawn at a time; the filter looks through all of them
  const PLACES = /^(x|y)2?$|_(x|y)2?$|^(align|arrow)$/; // where marks lie says nothing to a reader
  const UNITS = {
    s: "s", ms: "ms", bytes: "bytes", tokens: "tokens", pct: "%", points: "percentage points", services: "services",
    bytes_per_s: "bytes/s", requests_per_s: "requests/s", gbit_per_s: "Gbit/s",
  };
  const ENDINGS = Object.keys(UNITS).sort((one, other) => other.length - one.length);

  /* "mean_ttft_s" in words, with its unit, unless a tooltip of the figure has better ones. */
  function inWords(column) {
    const ending = ENDINGS.find(unit => column.endsWith(`_${unit}`));
    const name = (ending ? column.slice(0, -ending.length - 1) : column).replace(/_/g, " ");
    const title = name.replace(/\b(ttft|tbt|gpu|kv|vram|dram|ssd|nic)\b/g, word => word.toUpperCase());
    return title[0].toUpperCase() + title.slice(1) + (ending ? ` (${UNITS[ending]})` : "");
  }

  /* Columns in the order of the figure's tooltips, then the others; each with its heading. */
  function columns(spec, rows) {
    const there = new Set(rows.flatMap(row => Object.keys(row)));
    const titles = new Map();
    (function look(part) {
      if (Array.isArray(part)) part.forEach(look);
      else if (part && typeof part === "object")
        for (const [key, value] of Object.entries(part))
          if (key === "tooltip" && Array.isArray(value)) {
            for (const { field, title } of value)
              if (there.has(field) && !titles.has(field)) titles.set(field, title || inWords(field));
          } else if (key !== "datasets") look(value);
    })(spec);
    for (const column of there)
      if (!titles.has(column) && !PLACES.test(column)) titles.set(column, inWords(column));
    return [...titles];
  }

  function shown(value) {
    if (value === null || value === undefined || value === "") return "–";
    if (typeof value !== "number") return String(value);
    if (Number.isInteger(value)) return value.toLocaleString("en");
    if (Math.abs(value) < 1e-12) return "0"; // what rounding left
    return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4)));
  }

  const element = (name, properties = {}, ...children) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  };

  function fill(details, box) {
    const spec = box.figure ? box.figure.spec : JSON.parse(box.querySelector("script").textContent);
    const rows = Object.values(spec.datasets || {})[0] || [];
    const shownColumns = columns(spec, rows);
    const texts = rows.map(row => shownColumns.map(([column]) => shown(row[column])));
    const words = texts.map(row => row.join(" ").toLowerCase());

    const field = element("input", { type: "search", placeholder: "words" });
    const count = element("output");
    const tools = element("div", { className: "companion-filter" }, element("label", {}, "Filter ", field), count);
    const caption = element("caption", { className: "visually-hidden", textContent: details.dataset.caption });
    const head = element("tr", {}, ...shownColumns.map(([, title]) => element("th", { scope: "col", textContent: title })));
    const body = element("tbody");
    const table = element("table", {}, caption, element("thead", {}, head), body);
    const frame = element("div", { className: "companion-rows", tabIndex: 0 }, table); // the keyboard scrolls it
    frame.setAttribute("role", "region");
    frame.setAttribute("aria-label", details.dataset.caption);

    function filter() {
      const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      const found = texts.filter((_, at) => wanted.every(word => words[at].includes(word)));
      const drawn = found.slice(0, MOST_ROWS);
      body.replaceChildren(...drawn.map(row =>
        element("tr", {}, ...row.map(text => element("td", { textContent: text })))));
      const of = found.length < texts.length ? `${found.length} of ${texts.length} rows` : `${texts.length} rows`;
      count.value = drawn.length < found.length ? `${of}, the first ${MOST_ROWS} shown; all are in the CSV above` : of;
    }
    field.addEventListener("input", filter);
    filter();
    details.querySelector(".companion-table").replaceChildren(tools, frame);
  }

  function start() {
    for (const details of document.querySelectorAll("details.companion-data")) {
      const box = document.querySelector(`.companion-chart[data-name="${details.dataset.figure}"]`);
      let fresh = false;
      const show = () => {
        if (fresh || !details.open) return;
        fill(details, box);
        fresh = true;
      };
      details.addEventListener("toggle", show);
      box.addEventListener("companion-redrawn", () => { // by other rows
        fresh = false;
        show();
      });
    }
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
