// The application: addresses, live updates, and what clicks and keys do.

const FIRST_ROWS = 100; // the first rows are there before all of them
const MOST_ROWS = 2500; // of one answer
const RENEWED_ROWS = 1000; // of one answer while the list is read: a larger one blocks the page for longer
const PATIENCE = SECOND; // how long the first list waits for the stream, so that no decision falls between the two

const FRESH = 10 * SECOND; // how often the rows in sight are loaded anew: the stream has changed decisions only, not usages
const LONGEST_QUERY = 1500; // characters; hpad takes request lines of 2,048

// How often the whole list is loaded anew, because HPAs may be gone.
const renewal = (rows) => Math.min(2 * MINUTE, Math.max(20 * SECOND, rows * 20));

class App {
  constructor() {
    this.model = new Model();
    this.shell = new Shell();
    this.sources = null;
    this.page = null;
    this.list = new ListPage(this.model);
    this.live = new Live({
      decision: (summary) => this.decision(summary),
      poll: () => this.poll(),
      changed: (state) => this.became(state),
      failed: (error) => this.failed(error),
    });
    this.loading = null; // the keys that were seen while the list is loaded
  }

  start() {
    history.scrollRestoration = "manual"; // the browser does not know how high the list will be
    this.route();
    addEventListener("hashchange", () => this.route());
    this.loadFacts();
    this.loadSources();
    this.live.start();
    setTimeout(() => !this.model.complete && this.loadList(), PATIENCE);
    setInterval(() => this.tick(), SECOND);
    setInterval(() => !document.hidden && this.page === this.list && this.freshen(), FRESH);
    this.renew();
  }

  go(hash) {
    location.hash = hash;
  }

  // Shows the page that the address names.
  route() {
    const [path, query] = location.hash.replace(/^#/, "").split("?");
    const parts = path.split("/").filter(Boolean).map(decoded);
    const parameters = new URLSearchParams(query);
    if (parts[0] === "hpas" && parts.length === 3) {
      const kind = parameters.get("kind") === AUTOSCALER ? AUTOSCALER : HPA;
      return this.routeHpa({ namespace: parts[1], name: parts[2], kind }, parameters.get("at"));
    }
    if (parts[0] === "sources") return this.enter(new SourcesPage(this), "sources", "Metric sources");
    this.readFilters(parameters);
    if (this.page === this.list) this.list.arrange();
    this.enter(this.list, "", "HPAs");
    this.list.update();
  }

  // `named` is namespace, name and kind.
  routeHpa(named, at) {
    const { page } = this;
    if (page instanceof HpaPage && page.key === keyOf(named)) return page.pick(at);
    this.enter(new HpaPage(named, at, this), "", keyOf(named));
  }

  enter(page, tab, title) {
    document.title = harmless(`${title} · hpad`);
    this.shell.mark(tab);
    if (page === this.page) return;
    this.page?.leave();
    const before = this.page;
    this.page = page;
    $("main").replaceChildren();
    if (page !== this.list) scrollTo(0, 0);
    page.enter($("main"));
    this.shell.update();
    if (page === this.list && before instanceof HpaPage && this.list.body.childElementCount) this.list.focus();
    else if (before) $("main").focus({ preventScroll: true });
  }

  readFilters(parameters) {
    const { model } = this;
    model.search = (parameters.get("search") ?? "").toLowerCase();
    model.states = new Set(parameters.getAll("state").filter((state) => state in STATES));
    model.kind = parameters.get("kind") in KINDS ? parameters.get("kind") : null;
    model.sort = parameters.get("sort") in ORDERS ? parameters.get("sort") : FIRST_ORDER;
    model.reverse = parameters.has("reverse");
    if ($("search").value.toLowerCase() !== model.search) $("search").value = parameters.get("search") ?? "";
  }

  // Puts the filters into the address, so that they can be shared and the way back leads to them.
  writeFilters({ replace = false } = {}) {
    const { model } = this;
    const parameters = new URLSearchParams();
    if (model.search) parameters.set("search", $("search").value);
    for (const state of model.states) parameters.append("state", state);
    if (model.kind) parameters.set("kind", model.kind);
    if (model.sort !== FIRST_ORDER) parameters.set("sort", model.sort);
    if (model.reverse) parameters.set("reverse", "");
    const hash = `#/${parameters.size ? `?${parameters}` : ""}`;
    if (replace && this.page === this.list) history.replaceState(null, "", hash);
    else this.go(hash);
    if (this.page === this.list) this.rearrange();
  }

  rearrange() {
    scrollTo(0, 0);
    this.list.active = 0;
    this.model.arrange();
    this.list.update();
    announce(`${plural(this.model.order.length, "HPA")} listed`);
  }

  async loadList() {
    if (this.loading) return;
    this.loading = new Set();
    try {
      if (this.model.complete) await this.loadAll(RENEWED_ROWS);
      else {
        const first = await get("hpas", { limit: FIRST_ROWS, sort: ORDERS[this.model.sort].sort });
        this.take(first);
        if (first.continue) await this.loadAll(MOST_ROWS);
      }
      this.model.retain(this.loading);
      this.model.complete = true;
      this.shell.refused = null;
    } catch (error) {
      this.failed(error);
    }
    this.loading = null;
    this.list.update();
    this.shell.update();
  }

  // By name: in another order, an HPA whose state changes meanwhile may be on none of the pages.
  async loadAll(limit) {
    await getAll("hpas", { limit }, { each: (page) => this.take(page) });
  }

  // Takes a page of the list.
  take(page) {
    this.model.total = page.total;
    this.model.counts = page.counts;
    for (const row of page.items) {
      this.model.put(row);
      this.loading.add(keyOf(row));
    }
    this.list.update();
  }

  async loadFacts() {
    const quietly = (path) => get(path).catch(() => null);
    const [version, replicas, facts] = await Promise.all(["version", "replicas", "status"].map(quietly));
    const { shell } = this;
    shell.version = version ?? shell.version;
    shell.replicas = replicas ?? shell.replicas;
    shell.facts = facts ?? shell.facts;
    shell.update();
  }

  // Returns the error, null if it worked.
  async loadSources() {
    try {
      this.sources = (await get("sources")).items;
      if (this.page instanceof HpaPage) this.page.render();
      return null;
    } catch (error) {
      return error;
    }
  }

  // Loads the rows in sight again.
  async freshen() {
    if (this.live.state !== "live" || this.loading) return;
    const batches = [[]];
    for (const key of this.list.shownKeys()) {
      const length = batches.at(-1).reduce((sum, each) => sum + encodeURIComponent(each).length + 5, 0);
      if (length > LONGEST_QUERY) batches.push([]);
      batches.at(-1).push(key);
    }
    try {
      for (const keys of batches.filter((each) => each.length)) {
        for (const row of (await get("hpas", { hpa: keys })).items) this.model.put(row);
      }
      this.changed = true;
    } catch (error) {
      this.failed(error);
    }
  }

  // Loads the list and the facts again, more rarely the more HPAs there are.
  renew() {
    setTimeout(async () => {
      if (!document.hidden && this.live.state === "live") await Promise.all([this.loadList(), this.loadFacts(), this.loadSources()]);
      this.renew();
    }, renewal(this.model.rows.size));
  }

  // Called while there is no stream, and after each connection. Throws if hpad does not answer.
  async poll() {
    await get("version");
    await this.loadList();
    await this.loadFacts();
    this.page?.refresh?.();
  }

  failed(error) {
    if (error.status === 401 || error.status === 403) {
      this.shell.refused = `hpad refuses to answer (status ${error.status}): it needs a token or a certificate, which a proxy can add.`;
    } else if (error.status === 0 && this.live.state === "live") this.live.lost();
    this.shell.update();
  }

  became(state) {
    if (state === "lost") this.shell.lostAt ??= Date.now();
    else this.shell.lostAt = null;
    this.shell.live = state;
    this.shell.update();
  }

  decision(summary) {
    this.loading?.add(keyOf(summary));
    if (!this.model.put(summary)) return;
    this.page?.decision?.(summary);
    this.changed = true;
  }

  // Once a second: the times, and the decisions that came meanwhile.
  tick() {
    const now = Date.now();
    for (const element of document.querySelectorAll("[data-ago]")) {
      const text = ago(Number(element.dataset.ago), now);
      if (element.textContent !== text) element.textContent = text;
    }
    if (!this.changed) return;
    this.changed = false;
    if (this.page === this.list) this.list.update();
  }
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

const app = new App();

const actions = {
  skip: () => $("main").focus(),
  theme: () => theme.next(),
  help: () => $("help").showModal(),
  arrange: () => {
    app.list.arrange();
    app.list.update();
  },
  clear: () => {
    app.model.search = $("search").value = "";
    app.model.states.clear();
    app.model.kind = null;
    app.writeFilters();
  },
  kind: ({ dataset }) => {
    app.model.kind = dataset.kind || null;
    app.writeFilters();
  },
  filter: ({ dataset }) => {
    const { states } = app.model;
    if (dataset.state === "all") states.clear();
    else if (!states.delete(dataset.state)) states.add(dataset.state);
    app.writeFilters();
  },
  cause: ({ dataset }) => {
    $("search").value = dataset.cause;
    app.model.search = dataset.cause.toLowerCase();
    app.writeFilters();
  },
  sort: ({ dataset }) => {
    const { model } = app;
    model.reverse = model.sort === dataset.by && !model.reverse;
    model.sort = dataset.by;
    app.writeFilters({ replace: true });
  },
  range: ({ dataset }) => app.page.choose(dataset.range),
  toggle: ({ dataset }) => app.page.toggle(dataset.address),
  more: () => {
    app.page.rowsShown += 100;
    app.page.render();
  },
};

document.addEventListener("click", (event) => {
  const place = event.target.closest(".row")?.dataset.index;
  if (place) app.list.active = Number(place);
  const element = event.target.closest("[data-do]");
  if (element) {
    if (element.tagName === "A") event.preventDefault();
    return actions[element.dataset.do](element);
  }
  const row = event.target.closest(".row");
  const selecting = String(getSelection()).length > 0;
  if (row && !event.target.closest("a") && !selecting) row.querySelector("a").click();
});

document.addEventListener("input", (event) => {
  if (event.target.id !== "search") return;
  app.model.search = event.target.value.toLowerCase();
  app.writeFilters({ replace: true });
});

document.addEventListener("change", (event) => {
  if (event.target.id !== "order") return;
  app.model.sort = event.target.value;
  app.model.reverse = false;
  app.writeFilters({ replace: true });
});

document.addEventListener("submit", (event) => {
  if (event.target.matches(".search")) {
    event.preventDefault();
    if (app.page === app.list) app.list.move(0);
  }
});

document.addEventListener("focusin", (event) => {
  const row = event.target.closest(".row");
  if (row && app.page === app.list) app.list.active = Number(row.dataset.index);
});

const keys = {
  "/": () => $("search").select(),
  "?": () => $("help").showModal(),
  t: () => theme.next(),
  j: () => walk(1),
  k: () => walk(-1),
  ArrowDown: (event) => inList(event) && walk(1),
  ArrowUp: (event) => inList(event) && walk(-1),
};

const inList = (event) => event.target.closest?.(".row") !== null && app.page === app.list;

// The next or previous HPA, or on the page of an HPA the next or previous decision.
function walk(by) {
  if (app.page === app.list) return app.list.move(by);
  const links = [...document.querySelectorAll(".past-list a")];
  const now = links.indexOf(document.activeElement);
  links[Math.max(0, Math.min(links.length - 1, now + by))]?.focus();
}

let prefix = ""; // "g" was typed, and a page may follow

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") return escaped(event);
  if (event.target.matches("input, select, textarea") || $("help").open) return;
  const page = prefix === "g" ? { h: "#/", s: "#/sources" }[event.key] : undefined;
  prefix = event.key === "g" ? "g" : "";
  if (page !== undefined) app.go(page);
  else if (keys[event.key]) {
    if (keys[event.key](event) !== false) event.preventDefault();
  }
});

function escaped(event) {
  if ($("help").open) return;
  const search = $("search");
  if (event.target === search) {
    if (search.value) {
      search.value = app.model.search = "";
      app.writeFilters({ replace: true });
    } else search.blur();
  } else if (app.page instanceof HpaPage) app.go(app.page.at ? hpaLink(app.page) : "#/");
  else if (app.page !== app.list) app.go("#/");
  else if (app.model.states.size || app.model.kind) actions.clear();
  else document.activeElement.blur();
}

app.start();
