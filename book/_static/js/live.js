/* "Run it here": figures computed again in the reader's browser. Nothing is loaded before a click on Run. */
(() => {
  "use strict";

  const home = new URL(".", document.currentScript.src); // of the scripts, wherever the book lies
  const copy = value => JSON.parse(JSON.stringify(value));
  let settings; // where Python and the wheel are
  let worker; // one for the page: a second run finds Python started
  let running; // the control whose run is under way

  async function load() {
    const answer = await fetch(new URL("../live/live.json", home), { cache: "no-cache" });
    if (!answer.ok) throw new Error(`the live model is not there (${answer.status})`);
    return answer.json();
  }

  function stop() {
    if (worker) worker.terminate();
    worker = running = undefined;
  }

  /* Whether a control of a figure may keep its value in another specification. */
  function allows(spec, name, value) {
    const param = (spec.params || []).find(each => each.name === name);
    if (!param) return true;
    return Boolean(param.bind) && (!param.bind.options || param.bind.options.includes(value));
  }

  class Control {
    constructor(details) {
      this.details = details;
      this.form = details.querySelector("form");
      this.status = details.querySelector(".companion-run-status");
      this.error = details.querySelector(".companion-run-error");
      this.buttons = Object.fromEntries(
        [...this.form.querySelectorAll("button")].map(button => [button.dataset.act || "run", button]));
      const figure = details.closest("figure") || details.parentElement;
      this.box = figure.querySelector(".companion-chart");
      this.caption = figure.querySelector("figcaption");
      this.form.addEventListener("submit", event => { event.preventDefault(); this.run(); });
      this.buttons.stop.addEventListener("click", () => this.stop());
      this.buttons.back.addEventListener("click", () => this.back());
      details.hidden = false;
      if (location.protocol === "file:") this.onlyServed();
    }

    /* Browsers run no Python from files. */
    onlyServed() {
      this.buttons.run.disabled = true;
      this.status.textContent = "This works where the book is served: in its folder, type ";
      const command = document.createElement("code");
      command.textContent = "python -m http.server";
      this.status.append(command, " and open http://localhost:8000.");
    }

    values() {
      return Object.fromEntries(new FormData(this.form));
    }

    async run() {
      if (running) return;
      running = this;
      this.began = performance.now();
      this.say("", "");
      this.busy(true);
      try {
        this.status.textContent = "Loading…";
        settings = settings || await load();
        if (running !== this) return; // stopped meanwhile
        const address = path => new URL(path, new URL("../live/", home)).href;
        if (!worker) {
          worker = new Worker(new URL(`live-worker.js?v=${settings.version}`, home), { type: "module" });
          worker.onmessage = ({ data }) => running && running.heard(data);
          worker.onerror = event => running && running.failed(event.message || "its script could not be loaded");
        }
        worker.postMessage({
          home: address(settings.pyodide), outside: !settings.pyodide.startsWith("."), files: settings.files,
          wheel: address(settings.wheel), slice: this.details.dataset.slice && address(this.details.dataset.slice),
          figure: this.details.dataset.figure, given: this.values(),
        });
      } catch (error) {
        this.failed(error.message);
      }
    }

    async heard(message) {
      if (message.kind === "status") this.status.textContent = message.text;
      else if (message.kind === "failed") this.failed(message.text);
      else {
        running = undefined;
        this.busy(false);
        if (message.error) this.say(message.error, message.field);
        else await this.show(message);
      }
    }

    failed(reason) {
      stop();
      this.busy(false);
      this.say(`The model could not run here: ${reason}. The rest of the page works without it.`, "");
    }

    stop() {
      if (running !== this) return;
      stop();
      this.busy(false);
      this.status.textContent = "Stopped.";
    }

    busy(yes) {
      this.buttons.run.disabled = yes;
      this.buttons.stop.disabled = !yes;
      this.details.dataset.state = yes ? "running" : "idle";
      if (yes) this.buttons.stop.focus();
      else if (document.activeElement === document.body || document.activeElement === this.buttons.stop)
        { this.buttons.stop.disabled = true; this.buttons.run.focus(); }
      if (!yes) this.status.textContent = "";
    }

    /* An error beside the field that it is about, or below the form. */
    say(text, field) {
      for (const entry of this.form.elements) {
        if (!entry.name) continue;
        const wrong = entry.name === field;
        if (wrong) entry.setAttribute("aria-invalid", "true");
        else entry.removeAttribute("aria-invalid");
        document.getElementById(`${entry.id}-error`).textContent = wrong ? text : "";
        if (wrong) entry.focus();
      }
      this.error.textContent = field && this.form.elements[field] ? "" : text;
    }

    async show({ rows, description, fixed, offered, told, reported }) {
      const figure = this.box.figure;
      this.original = this.original || figure.spec;
      const spec = copy(this.original);
      const table = Object.keys(spec.datasets)[0]; // a figure has exactly one
      const kept = spec.datasets[table].filter(row => reported && row.origin === "reported");
      spec.datasets[table] = [...rows, ...kept];
      spec.description = description;
      for (const param of spec.params || []) if (param.name in fixed) {
        param.value = fixed[param.name];
        delete param.bind;
      } else if (param.name in offered) {
        param.bind.options = offered[param.name];
        if (!param.bind.options.includes(param.value)) param.value = param.bind.options[0];
      }
      this.note(told);
      await this.redraw(spec, "here");
    }

    async back() {
      this.note("");
      await this.redraw(this.original, "book");
      this.say("", "");
      this.status.textContent = "The book’s figure is back.";
      this.buttons.run.focus();
    }

    async redraw(spec, from) {
      const figure = this.box.figure;
      figure.controls = figure.controls.filter(name => allows(spec, name, figure.view.signal(name)));
      figure.spec = spec;
      await figure.show();
      this.box.dataset.from = from;
      this.buttons.back.disabled = from === "book";
      const seconds = ((performance.now() - this.began) / 1000).toFixed(1);
      this.status.textContent =
        from === "book" ? "" : `Done in ${seconds} s: the figure above and its caption are of this run.`;
      this.box.dispatchEvent(new CustomEvent("companion-redrawn", { bubbles: true, detail: { spec, from } }));
    }

    /* What the figure is of now, in front of its caption. */
    note(text) {
      if (!this.told) {
        this.told = document.createElement("p");
        this.told.className = "companion-run-told";
        if (this.caption) this.caption.prepend(this.told);
        else this.details.before(this.told);
      }
      this.told.textContent = text;
      this.told.hidden = !text;
    }
  }

  const begin = () => document.querySelectorAll(".companion-run").forEach(details => new Control(details));
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
