// The page of the metric sources.

const SOURCE_STATES = {
  ok: { label: "ok", icon: "ok", state: "ok" },
  idle: { label: "idle", icon: "waiting", state: "waiting" },
  failing: { label: "failing", icon: "failing", state: "failing" },
  broken: { label: "not set up", icon: "failing", state: "failing" },
  open: { label: "circuit open", icon: "failing", state: "failing" },
};

function sourceMark({ state }) {
  const known = SOURCE_STATES[state] ?? { label: state, icon: "failing", state: "atMax" };
  return h("span.mark", { "data-state": known.state }, icon(known.icon, known.label));
}

class SourcesPage {
  constructor(app) {
    this.app = app;
    this.error = null;
  }

  enter(main) {
    show(main, h("div.sources", { "data-own": true }));
    this.body = main.firstChild;
    this.render();
    this.refresh();
    this.timer = setInterval(() => !document.hidden && this.refresh(), REFRESH);
  }

  leave() {
    clearInterval(this.timer);
  }

  async refresh() {
    this.error = await this.app.loadSources();
    this.render();
  }

  render() {
    const { sources } = this.app;
    show(this.body, h("div.lead", {}, h("h1", {}, "Metric sources"),
      h("p.quiet", {}, "Where hpad reads metrics, and how that went since it was started.")),
      this.error && h("div.empty", {}, h("p", {}, this.error.message)),
      sources === null && !this.error && h("div.empty.loading", {}, h("p", {}, "Loading …")),
      sources?.length === 0 && h("div.empty", {}, icon("sources"), h("h2", {}, "No source"), h("p", {}, "No metric source is set up.")),
      h("ul.source-list", {}, (sources ?? []).map((source) => this.card(source))));
  }

  card(source) {
    const known = SOURCE_STATES[source.state];
    const errors = Object.entries(source.errors ?? {});
    const rate = source.asked ? `${short((100 * source.hits) / source.asked)}%` : "–";
    const fact = (label, value) => h("div", {}, h("dt", {}, label), h("dd", {}, value));
    return h("li.card", { "data-key": source.name },
      h("header", {}, sourceMark(source), h("h2", {}, source.name),
        h("span.badge", { "data-state": known?.state ?? "atMax" }, known?.label ?? source.state)),
      h("p.quiet", {}, `adapter ${source.adapter}`),
      h("dl.numbers", {},
        fact("Calls", count(source.calls)), fact("Retries", count(source.retries)),
        fact("Queries", count(source.asked)), fact("Cache hits", rate),
        fact("Latency", source.latency === null || source.latency === undefined ? "–" : `${short(source.latency * 1000)} ms`),
        fact("Errors", errors.length ? errors.map(([blame, number]) => `${count(number)} ${blame}`).join(", ") : "0")),
      source.lastError && h("div.last-error", {}, h("h3", {}, "Last error", source.lastErrorAt && [" ", timeAgo(source.lastErrorAt)]),
        h("div", {}, folded(source.lastError))));
  }
}
