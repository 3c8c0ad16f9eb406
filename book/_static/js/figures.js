/* Draws the figures of a page: in its colours and fonts, in its width, in light and dark. */
(() => {
  "use strict";

  const NARROW_PX = 560; // below this, parts of a figure stand below each other
  const WIDEST_PX = 860;
  const NARROWEST_PLOT_PX = 200; // a figure that would get less scrolls in its own box
  const PARTS = ["hconcat", "vconcat", "concat"];

  const theme = () => document.documentElement.dataset.theme; // "auto" until the theme's script has run
  const copy = value => JSON.parse(JSON.stringify(value));
  const isObject = value => value !== null && typeof value === "object" && !Array.isArray(value);

  function merged(one, other) {
    const both = { ...one };
    for (const [key, value] of Object.entries(other))
      both[key] = isObject(value) && isObject(both[key]) ? merged(both[key], value) : value;
    return both;
  }

  /* --- the page's look, as a Vega-Lite configuration ------------------------------------------ */

  function look(narrow) {
    const page = getComputedStyle(document.documentElement);
    const variable = name => page.getPropertyValue(name).trim();
    const text = variable("--pst-color-text-base");
    const line = variable("--companion-rule");
    const guide = { labelColor: text, titleColor: text };
    return {
      background: "transparent",
      font: variable("--companion-figure-font"),
      axis: { ...guide, domainColor: text, tickColor: text, gridColor: line },
      header: guide,
      legend: { ...guide, ...(narrow ? { columns: 1, layout: { top: { direction: "vertical", margin: 6 } } } : {}) },
      title: { color: text, subtitleColor: text },
      text: { color: text },
      style: { "guide-label": { fill: text }, "guide-title": { fill: text }, "group-title": { fill: text } },
      view: { stroke: null },
      aria: true,
    };
  }

  /* --- a specification fitted to a width -------------------------------------------------------- */

  const isComposed = spec =>
    PARTS.some(key => key in spec) || "spec" in spec || "facet" in spec ||
    ["row", "column", "facet"].some(channel => channel in (spec.encoding || {}));

  function fitted(spec, width, excess) {
    const narrow = width < NARROW_PX;
    const fit = copy(spec);
    fit.config = merged(fit.config || {}, look(narrow));
    if (narrow) stack(fit);
    if (isComposed(fit)) shrink(fit, excess);
    else if (!isObject(fit.width)) { // {step: n} is a size of the marks, kept; the figure then scrolls
      fit.width = Math.min(width, WIDEST_PX) - excess;
      fit.autosize = { type: "fit-x", contains: "padding" };
    }
    return fit;
  }

  function stack(spec) {
    if (spec.hconcat) {
      spec.vconcat = spec.hconcat;
      delete spec.hconcat;
    }
    const grid = spec.facet && (spec.facet.row || spec.facet.column); // has no columns to set
    if (spec.concat || (spec.facet && !grid) || (spec.encoding || {}).facet) spec.columns = 1;
    for (const channel of Object.values(spec.encoding || {})) if (channel.legend) delete channel.legend.columns;
    for (const key of [...PARTS, "layer"]) for (const part of spec[key] || []) stack(part);
  }

  /* Take `excess` pixels off a composed figure, shared among the views that stand side by side. */
  function shrink(spec, excess) {
    if (!excess) return;
    const side = spec.hconcat || spec.concat;
    const share = side ? excess / side.length : excess / (spec.columns || 1);
    const inner = side || spec.vconcat || (spec.spec ? [spec.spec] : []);
    for (const part of inner) {
      if (isComposed(part)) shrink(part, share);
      else part.width = Math.max(NARROWEST_PLOT_PX, width_of(part, spec) - share);
    }
    if (!inner.length) spec.width = Math.max(NARROWEST_PLOT_PX, width_of(spec, spec) - share);
  }

  const width_of = (view, top) =>
    typeof view.width === "number" ? view.width : (((top.config || {}).view || {}).continuousWidth || 300);

  /* --- one figure ------------------------------------------------------------------------------- */

  class Figure {
    constructor(box) {
      this.box = box;
      this.live = box.querySelector(".companion-live");
      this.spec = JSON.parse(box.querySelector("script").textContent);
      this.panel = box.querySelector(".companion-controls");
      this.scroll = box.querySelector(".companion-scroll");
      this.controls = [];
      box.figure = this; // for live.js, which gives it other rows
    }

    async draw() {
      const kept = this.view ? this.controls.map(name => [name, this.view.signal(name)]) : [];
      const width = Math.floor(this.box.clientWidth);
      this.width = width;
      await this.embed(fitted(this.spec, width, 0));
      const excess = this.excess(width);
      if (excess) await this.embed(fitted(this.spec, width, excess));
      for (const [name, value] of kept) this.view.signal(name, value);
      await this.view.runAsync();
      label(this.panel);
      this.box.dataset.state = "drawn";
      const scrolls = this.scroll.scrollWidth > this.scroll.clientWidth;
      if (scrolls) this.scroll.tabIndex = 0; // so that the keyboard can scroll it, too
      else this.scroll.removeAttribute("tabindex");
    }

    /* Pixels that the drawing is too wide, or, below zero, that its plot is too narrow. */
    excess(width) {
      if (isComposed(this.spec))
        return Math.max(0, this.live.querySelector("svg").getBoundingClientRect().width - width);
      return isObject(this.spec.width) ? 0 : Math.min(0, this.view.width() - NARROWEST_PLOT_PX);
    }

    async embed(spec) {
      if (this.view) this.view.finalize();
      this.panel.replaceChildren();
      const result = await vegaEmbed(this.live, spec, {
        actions: false, bind: this.panel, renderer: "svg", ast: true, logLevel: 1, tooltip: { disableDefaultStyle: true },
      });
      this.view = result.view;
      // One image with a description, and a table below it; not thousands of marks to listen through.
      const drawing = this.live.closest("[role=graphics-document]") || this.live.querySelector("[role=graphics-document]");
      drawing.setAttribute("role", "img");
      drawing.removeAttribute("aria-roledescription");
      this.live.querySelector("svg").setAttribute("aria-hidden", "true");
      this.controls = (result.vgSpec.signals || []).filter(signal => signal.bind).map(signal => signal.name);
    }

    show() {
      // One drawing after the other: a switch during a drawing is followed by a fresh one.
      this.drawing = (this.drawing || Promise.resolve()).then(() => this.draw()).catch(error => {
        this.box.dataset.state = "failed"; // the static image stays
        console.error(`figure ${this.box.dataset.name}: ${error.message}`);
      });
      return this.drawing;
    }
  }

  /* Vega names its controls for the eye only, and puts the labels of radio buttons into a label. */
  function label(panel) {
    for (const bind of panel.querySelectorAll(".vega-bind")) {
      const title = bind.querySelector(".vega-bind-name");
      if (!title) continue;
      const name = title.textContent.trim();
      const choices = bind.querySelector(".vega-bind-radio");
      if (!choices) {
        bind.querySelector("input, select").setAttribute("aria-label", name);
        continue;
      }
      const outer = bind.querySelector(":scope > label"); // some versions have none
      const group = outer ? document.createElement("div") : choices;
      group.setAttribute("role", "radiogroup");
      group.setAttribute("aria-label", name);
      if (!outer) continue;
      group.append(...outer.childNodes);
      outer.replaceWith(group);
    }
  }

  /* --- the theme's own page, where it fails readers of screens ----------------------------------- */

  function mend() {
    const named = "summary[aria-label], .search-button-field[aria-label], a.nav-link[aria-label], button.nav-link[aria-label]";
    for (const element of document.querySelectorAll(named))
      if (element.textContent.trim()) element.removeAttribute("aria-label"); // it contradicts the visible text
    for (const list of document.querySelectorAll(".citation-list[role=list]"))
      for (const item of list.children) item.setAttribute("role", "listitem");
    for (const button of document.querySelectorAll(".theme-switch-button")) button.setAttribute("aria-label", "Colour mode");
    for (const icon of document.querySelectorAll(".theme-switch-button .theme-switch")) {
      icon.removeAttribute("title");
      icon.setAttribute("aria-hidden", "true");
    }
    const logo = document.querySelector(".sidebar-primary-items__start > .sidebar-primary-item:first-child");
    if (logo && !logo.closest("nav, [role=navigation]")) {
      logo.setAttribute("role", "navigation");
      logo.setAttribute("aria-label", "Book title");
    }
  }

  function start() {
    mend();
    const figures = [...document.querySelectorAll(".companion-chart")].map(box => new Figure(box));
    for (const figure of figures) figure.show();

    let last = theme();
    let shown = last;
    new MutationObserver(() => {
      if (theme() === last) return;
      last = shown = theme();
      for (const figure of figures) figure.show();
    }).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });

    // On paper a page is light, whatever it is on the screen; its figures are the static ones.
    addEventListener("beforeprint", () => {
      last = "light";
      document.documentElement.dataset.theme = "light";
    });
    addEventListener("afterprint", () => {
      last = shown;
      document.documentElement.dataset.theme = shown;
    });

    // Not only with the window: a side bar that opens or goes changes a figure's place, too.
    let waiting;
    const places = new ResizeObserver(() => {
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        for (const figure of figures)
          if (Math.abs(figure.box.clientWidth - figure.width) > 4) figure.show();
      }, 150);
    });
    for (const figure of figures) places.observe(figure.box);
  }

  // After the theme's own script, which settles on light or dark in the same event.
  const soon = () => setTimeout(start, 0);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", soon);
  else soon();
})();
