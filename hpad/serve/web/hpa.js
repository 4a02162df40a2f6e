// The page of one HPA: its state, curves, the present or a past decision, conditions and events.

const RANGES = { "1h": HOUR, "6h": 6 * HOUR, "24h": DAY, all: Infinity };
const MOST_ENTRIES = 5000;
const REFRESH = 10 * SECOND;

class HpaPage {
  // `named` is namespace, name and kind. `at` is the time of the decision that is shown, null for the present one.
  constructor(named, at, app) {
    Object.assign(this, named, { at, app });
    this.path = hpaPath(named);
    this.entries = [];
    this.detail = null;
    this.shown = null; // the past decision
    this.error = null;
    this.range = HpaPage.range ?? "6h";
    this.hidden = new Set();
    this.reached = Infinity; // from when on the history is loaded
    this.rowsShown = 30;
    this.abort = new AbortController();
  }

  get key() {
    return keyOf(this);
  }

  enter(main) {
    this.root = main;
    show(main, h("div.hpa", { "data-own": true }));
    this.body = main.firstChild;
    this.render();
    this.refresh();
    this.loadHistory();
    if (this.at) this.loadDecision();
    this.timer = setInterval(() => !document.hidden && this.refresh(), REFRESH);
  }

  leave() {
    this.abort.abort();
    clearInterval(this.timer);
  }

  decision(summary) {
    if (keyOf(summary) === this.key) this.refresh();
  }

  // Asks for the present state, and for what the history has gained. One call at a time.
  async refresh() {
    if (this.refreshing) return;
    this.refreshing = true;
    try {
      this.detail = await get(this.path, { kind: this.kind }, { signal: this.abort.signal });
      this.error = null;
      if (this.entries.length) await this.loadNewer();
    } catch (error) {
      this.failed(error);
    }
    this.refreshing = false;
    this.render();
  }

  failed(error) {
    if (error.name === "AbortError") return;
    if (error.status === 0) this.app.failed(error);
    else this.error = error;
  }

  async loadNewer() {
    const page = await get(`${this.path}/history`, { kind: this.kind, since: this.entries[0].began, limit: 1000 }, { signal: this.abort.signal });
    this.entries = mergeEntries(this.entries, page.items);
  }

  // Loads the history back to the start of the range.
  async loadHistory() {
    const from = this.from();
    if (from >= this.reached) return this.render();
    const since = Number.isFinite(from) ? new Date(from).toISOString() : undefined;
    try {
      const options = { most: MOST_ENTRIES, signal: this.abort.signal };
      this.entries = await getAll(`${this.path}/history`, { kind: this.kind, since, limit: 500 }, options);
      this.reached = from;
      this.loaded = true;
      const oldest = this.entries.at(-1);
      if (HpaPage.range === null && oldest && began(oldest) > Date.now() - HOUR) this.range = "1h";
    } catch (error) {
      this.failed(error);
    }
    this.render();
  }

  async loadDecision() {
    try {
      this.shown = await get(`${this.path}/decision`, { kind: this.kind, at: this.at }, { signal: this.abort.signal });
    } catch (error) {
      if (error.name === "AbortError") return;
      this.missing = error.message;
    }
    this.render();
  }

  // Shows the decision of another time, or of the present (null), without building the page anew.
  pick(at) {
    this.at = at;
    this.shown = null;
    this.missing = null;
    if (at) this.loadDecision();
    this.render();
    if (at) this.reveal(this.body.querySelector(".decision-card"));
  }

  // Scrolls to a card whose head is out of sight.
  reveal(card) {
    const { top } = card.getBoundingClientRect();
    if (top < 60 || top > innerHeight * 0.75) scrollBy({ top: top - 76, behavior: still.matches ? "instant" : "smooth" });
  }

  from() {
    return this.range === "all" ? -Infinity : Date.now() - RANGES[this.range];
  }

  choose(range) {
    this.range = HpaPage.range = range;
    this.loadHistory();
  }

  toggle(address) {
    if (!this.hidden.delete(address)) this.hidden.add(address);
    this.render();
  }

  render() {
    if (!this.detail) return this.renderWithout();
    show(this.body, this.title(), this.now(), this.chartCard(), h("div.columns", { "data-key": "columns" },
      h("div.main", {}, this.decisionCard(), this.past()),
      h("div.side", {}, this.conditions(), this.events(), this.sources())));
    this.drawChart();
  }

  renderWithout() {
    if (!this.error) return show(this.body, this.crumbs(), h("div.empty.loading", {}, h("p", {}, "Loading …")));
    const gone = this.error.status === 404;
    show(this.body, this.crumbs(), h("div.empty", {}, icon("search"), h("h2", {}, gone ? "No such HPA" : "This HPA cannot be shown"),
      h("div", {}, folded(this.error.message)), h("a.button", { href: "#/" }, "All HPAs")));
  }

  crumbs() {
    return h("nav.crumbs", { "aria-label": "Path" }, h("a", { href: "#/" }, icon("back"), "HPAs"),
      h("a", { href: `#/?search=${encodeURIComponent(`${this.namespace}/`)}` }, this.namespace));
  }

  title() {
    const row = this.detail;
    return h("header.title", { "data-key": "title" }, this.crumbs(),
      h("h1", {}, stateMark(row), h("span", {}, row.name), kindMark(row)),
      h("p.under", {}, h("span.quiet", {}, targetName(row)), row.states.map(stateBadge)));
  }

  now() {
    const row = this.detail;
    const last = row.lastDecision;
    return h("section.card.now", { "data-key": "now", "aria-label": "Now" },
      h("div.figure", {}, h("h2", {}, "Replicas"), h("p.big", {}, replicaCount(row)), replicaBar(row)),
      h("div.says", {}, h("h2", {}, "Last decision"),
        last ? h("div.sentence", {}, folded(last.sentence, briefOf(row))) : this.notDecided(),
        notesOf(row).map((note) => h("div.note", {}, icon("competing"), folded(note))),
        h("p.quiet", {}, last && h("span", {}, "decided ", timeAgo(last.time)),
          row.lastScaleTime && h("span", {}, "last rescale ", timeAgo(row.lastScaleTime)))),
      h("div.next", {}, h("h2", {}, "What next"), this.outlook(row.outlook, row.trace?.bounds?.applied)));
  }

  // This replica has made no decision: another one owns the HPA, or it is new.
  notDecided() {
    const others = (this.app.shell.replicas?.items ?? []).filter((each) => each.identity !== this.app.shell.replicas.self);
    if (!others.length) return h("p.sentence.quiet", {}, "No decision yet. The first one follows within a period.");
    const names = others.filter((each) => each.owned !== 0).map((each) => each.identity);
    return h("p.sentence.quiet", {},
      `This replica has made no decision for this HPA: another one owns it (${names.join(", ")}). Its own page shows the decisions.`);
  }

  // `bound` is the bound that held the count of the decision: "minimum", "maximum", or undefined.
  outlook(found, bound) {
    if (!found?.length) return h("p.quiet", {}, "Nothing is foreseen while the metrics stay as they are.");
    // An outlook that the minimum blocks is no trouble, unlike one of the maximum.
    const icons = bound === "minimum" ? { ...OUTLOOKS, blocked: "atMin" } : OUTLOOKS;
    return h("ul.outlook", {}, found.map((each) => h("li", { "data-kind": each.kind }, icon(icons[each.kind] ?? "next"),
      h("span", {}, each.text.slice(0, each.text.length - (each.rest ?? "").length),
        each.at && h("span.quiet", {}, " (", timeAgo(each.at), ")"), each.rest))));
  }

  chartCard() {
    return h("section.card.chart-card", { "data-key": "chart", "aria-label": "Replicas and proposals over time" },
      h("header", {}, h("h2", {}, "Replicas and proposals"),
        h("div.segments", { role: "group", "aria-label": "Time range" }, Object.keys(RANGES).map((name) =>
          h("button", { type: "button", "data-do": "range", "data-range": name, "aria-pressed": String(name === this.range) },
            name === "all" ? "All" : name)))),
      h("div.legend", { role: "group", "aria-label": "Lines" }, this.legend()),
      h("div.chart", {
        "data-own": true, tabindex: 0, role: "slider", "aria-label": "Past decisions", "aria-valuenow": 0, "aria-orientation": "horizontal",
      }));
  }

  legend() {
    const addresses = [...(this.lines?.metrics.keys() ?? [])];
    return [
      h("span.key", {}, swatch(null), "replicas"),
      this.lines?.shadow.some(([, number]) => number !== null) &&
        h("span.key", { title: STATES.shadow.text }, swatch(null, "shadow"), "in shadow"),
      addresses.map((address, index) => h("button.key", {
        type: "button", "data-do": "toggle", "data-address": address, "aria-pressed": String(!this.hidden.has(address)), "data-key": address,
      }, swatch(index), address)),
      h("span.key.quiet", {}, icon("up"), icon("down"), "rescales"),
    ];
  }

  drawChart() {
    const root = this.body.querySelector(".chart");
    this.chart ??= new Chart(root, (entry) => this.app.go(hpaLink(this, entry.began)));
    const from = chartStart(this.entries, this.from());
    this.lines = seriesOf(this.entries, from);
    this.chart.set({ lines: this.lines, from, to: Date.now(), hidden: this.hidden, selected: this.at ? Date.parse(this.at) : null });
    show(this.body.querySelector(".legend"), this.legend());
  }

  decisionCard() {
    const past = this.at !== null;
    const trace = past ? this.shown?.trace : this.detail.trace;
    const head = past
      ? h("header", {}, h("h2", {}, "The decision at ", h("time", { datetime: this.at }, moment(Date.parse(this.at)))),
        h("a.button", { href: hpaLink(this) }, icon("close"), "Back to now"))
      : h("header", {}, h("h2", {}, `Why ${plural(this.detail.trace?.replicas.desired ?? this.detail.desiredReplicas, "replica")}`),
        trace && h("span.quiet", {}, "decided ", timeAgo(trace.time)));
    return h("section.card.decision-card", { "data-key": "decision", class: past ? "past" : null, "aria-label": "Decision" },
      head, past && this.shown && this.pastFacts(), trace ? cascade(trace) : this.noTrace(past));
  }

  pastFacts() {
    const { shown } = this;
    const lasted = shown.turns > 1 ? `The same ${count(shown.turns)} times, until ${moment(ended(shown))}.` : "";
    return h("div.says", {}, h("div.sentence", {}, folded(shown.sentence)), lasted && h("p.quiet", {}, lasted),
      shown.notes?.map((note) => h("div.note", {}, icon("competing"), folded(note))),
      shown.outlook?.length > 0 && [h("p.quiet", {}, "What was next:"), this.outlook(shown.outlook, shown.trace?.bounds?.applied)]);
  }

  noTrace(past) {
    if (past && this.missing) return h("p.quiet", {}, this.missing);
    if (past && !this.shown) return h("p.quiet", {}, "Loading …");
    return h("p.quiet", {}, past ? "The numbers of this decision were not kept." : "This replica has no decision to explain yet.");
  }

  conditions() {
    const found = this.detail.conditions ?? [];
    return h("section.card", { "data-key": "conditions" }, h("h2", {}, "Conditions"),
      found.length === 0 && h("p.quiet", {}, "None yet."),
      h("ul.conditions", {}, found.map((each) => h("li", { "data-key": each.type },
        conditionMark(each, this.detail.troubles),
        h("div", {}, h("b", {}, each.type), h("span.quiet", {}, ` ${each.status}, `, each.reason),
          h("div.message", {}, folded(each.message)), each.lastTransitionTime && h("p.quiet", {}, "since ", timeAgo(each.lastTransitionTime)))))),
      Object.entries(this.detail.annotationErrors ?? {}).map(([name, text]) =>
        h("div.bad", {}, icon("failing"), h("div", {}, folded(`${name}: ${text}`)))));
  }

  events() {
    const events = (this.at ? this.shown?.trace : this.detail.trace)?.events ?? [];
    if (!events.length) return null;
    return h("section.card", { "data-key": "events" }, h("h2", {}, "Events of this decision"),
      h("ul.conditions", {}, events.map((each) => h("li", {},
        icon(each.type === "Normal" ? "ok" : "failing"),
        h("div", {}, h("b", {}, each.reason), h("div.message", {}, folded(each.message)))))));
  }

  sources() {
    const names = [...new Set((this.detail.trace?.metrics ?? []).map((metric) => metric.source).filter(Boolean))];
    const known = this.app.sources ?? [];
    const found = known.filter((source) => names.includes(source.name));
    if (!found.length) return null;
    return h("section.card", { "data-key": "sources" }, h("h2", {}, "Sources of its metrics"),
      h("ul.conditions", {}, found.map((source) => h("li", { "data-key": source.name }, sourceMark(source),
        h("div", {}, h("a", { href: "#/sources" }, source.name), h("span.quiet", {}, ` ${SOURCE_STATES[source.state]?.label ?? source.state}`),
          source.lastError && source.state !== "ok" && h("div.message", {}, folded(source.lastError)))))));
  }

  past() {
    const listed = notable(this.entries);
    const rows = listed.slice(0, this.rowsShown);
    return h("section.card", { "data-key": "past" }, h("h2", {}, "Rescales and failures"),
      this.loaded && listed.length === 0 && h("p.quiet", {}, "None in this time."),
      h("ol.past-list", {}, rows.map((entry) => this.pastRow(entry))),
      listed.length > rows.length && h("button.button", { type: "button", "data-do": "more" }, `Show more of ${count(listed.length)}`));
  }

  pastRow(entry) {
    const name = entry.error ? "failing" : entry.action === "scale_up" ? "up" : entry.action === "scale_down" ? "down" : "keep";
    const current = this.at === entry.began;
    return h("li", { "data-key": entry.began },
      h("a", { href: hpaLink(this, entry.began), "aria-current": current ? "true" : null },
        icon(name), h("b.number", {}, isRescale(entry) ? `${entry.current} → ${entry.desired}` : countOf(entry)),
        h("span.sentence", {}, entry.sentence), h("time.quiet", { datetime: entry.began }, moment(began(entry)))));
  }
}

HpaPage.range = null; // what the reader chose last

// The rescales of a history, and the start of each failure.
function notable(entries) {
  return entries.filter((entry, index) => isRescale(entry) || (entry.error && !entries[index + 1]?.error));
}

const OUTLOOKS = {
  step: "next", growth: "up", shrinking: "down", pods: "waiting", reading: "failing", fallback: "fallback",
  schedule: "next", blocked: "atMax", stopped: "paused",
};

function conditionMark({ type, status }, troubles) {
  if (troubles.includes(type)) return h("span.mark", { "data-state": type === "ScalingLimited" ? "limited" : "failing" }, icon("failing"));
  return h("span.mark", { "data-state": "ok" }, icon(type === "ScaledToZero" && status === "True" ? "paused" : "ok"));
}
