// What surrounds every page: the header, problems, the color scheme, and the help.

const THEMES = { auto: ["theme", "Colors of the system"], light: ["sun", "Light colors"], dark: ["moon", "Dark colors"] };

const theme = {
  get() {
    try {
      return localStorage.getItem("hpad-theme") ?? "auto";
    } catch {
      return "auto"; // the browser keeps nothing for this page
    }
  },
  next() {
    const names = Object.keys(THEMES);
    const chosen = names[(names.indexOf(this.get()) + 1) % names.length];
    try {
      localStorage.setItem("hpad-theme", chosen);
    } catch {
      // it lasts until the page is closed
    }
    this.apply(chosen);
    announce(THEMES[chosen][1]);
  },
  apply(name = this.get()) {
    document.documentElement.dataset.theme = name;
    const button = document.querySelector("[data-do=theme]");
    if (!button) return;
    button.title = THEMES[name][1];
    show(button, icon(THEMES[name][0], THEMES[name][1]));
  },
};

const LIVE = {
  connecting: ["Connecting", "The page connects to hpad."],
  live: ["Live", "The page shows each decision as it is made."],
  polling: ["Polling", "hpad sends no stream of decisions; the page asks every few seconds."],
  lost: ["Offline", "hpad does not answer. The page tries again every few seconds."],
};

class Shell {
  constructor() {
    this.live = "connecting";
    this.facts = null; // the answer of /api/v1/status, where hpad has it
    this.version = null;
    this.replicas = null;
    this.lostAt = null;
    this.refused = null;
    show($("top"), this.header());
    theme.apply();
    show($("help"), this.help());
  }

  header() {
    const tab = (to, name, label) =>
      h("a.tab", { href: `#/${to}`, "data-tab": to }, icon(name), h("span", {}, label));
    return [
      h("a.logo", { href: "#/", "aria-label": "hpad, all HPAs" }, icon("logo"), h("span", {}, "hpad")),
      h("nav", { "aria-label": "Pages" }, tab("", "list", "HPAs"), tab("sources", "sources", "Sources")),
      h("form.search", { role: "search", "data-own": true },
        icon("search"),
        h("input", {
          id: "search", type: "search", placeholder: "Search HPAs", "aria-label": "Search HPAs by namespace, name or target",
          autocomplete: "off", spellcheck: "false", "data-input": "search",
        }),
        h("kbd", { "aria-hidden": "true" }, "/")),
      h("div.facts", { "data-own": true }),
      h("button.tool", { type: "button", "data-do": "theme" }),
      h("button.tool", { type: "button", "data-do": "help", title: "Keyboard" }, icon("help", "Keyboard shortcuts")),
    ];
  }

  help() {
    const keys = [
      [["/"], "search"],
      [["j", "k"], "next, previous HPA, or decision"],
      [["Enter"], "open"],
      [["Esc"], "close, clear, or back to the list"],
      [["g", "h"], "all HPAs"],
      [["g", "s"], "metric sources"],
      [["t"], "light, dark, or the colors of the system"],
      [["?"], "this help"],
    ];
    return [
      h("h2", { id: "help-title" }, "Keyboard"),
      h("dl", {}, keys.map(([names, text]) =>
        [h("dt", {}, names.map((name) => h("kbd", {}, name))), h("dd", {}, text)])),
      h("p.quiet", {}, "On a chart, the arrow keys move from decision to decision, and Enter shows one."),
      h("form", { method: "dialog" }, h("button.button", {}, "Close")),
    ];
  }

  mark(page) {
    for (const tab of document.querySelectorAll(".tab")) {
      if (tab.dataset.tab === page) tab.setAttribute("aria-current", "page");
      else tab.removeAttribute("aria-current");
    }
  }

  update() {
    if ($("doing")) $("doing").textContent = harmless(this.facts?.doing ?? "");
    const [label, title] = LIVE[this.live];
    const replicas = this.replicas?.items ?? [];
    const own = replicas.find((each) => each.identity === this.replicas.self);
    const role = own && (replicas.length > 1 ? `${own.role}, 1 of ${replicas.length}` : own.role);
    show(document.querySelector(".top .facts"),
      this.facts?.dryRun && h("span.dry", { title: STATES.dryRun.text }, icon("dryRun"), h("span", {}, "Dry run")),
      role && role !== "single" && h("span.role", { title: own.identity }, role),
      h("span.live", { "data-live": this.live, title, role: "status" }, h("i.dot", {}), h("span", {}, label)));
    this.updateNotices();
    this.updateFoot();
  }

  updateNotices() {
    const notes = [...new Set([...(this.facts?.unready ?? []), ...(this.facts?.problems ?? [])])];
    show($("notices"),
      this.refused && h("div.notice", { "data-state": "failing" }, icon("failing"), h("p", {}, this.refused)),
      !this.refused && this.live === "lost" && h("div.notice", { "data-state": "failing" }, icon("failing"),
        h("p", {}, h("b", {}, "hpad does not answer. "),
          this.lostAt ? `The page shows what was known at ${clock(this.lostAt)}, and tries again.` : "The page tries again.")),
      this.facts?.dryRun && h("div.notice", { "data-state": "dryRun" }, icon("dryRun"),
        h("p", {}, h("b", {}, "Dry run: "), "hpad decides, but writes nothing to the cluster.")),
      this.standbyNotice(),
      notes.slice(0, 3).map((note) =>
        h("div.notice", { "data-state": "atMax" }, icon("failing"), h("div", {}, folded(note)))),
      notes.length > 3 && h("details.notice", { "data-state": "atMax" },
        h("summary", {}, plural(notes.length - 3, "more problem")), notes.slice(3).map((note) => h("div", {}, folded(note)))));
  }

  // A replica that stands by knows what the API server has, and nothing of the decisions.
  standbyNotice() {
    const replicas = this.replicas?.items ?? [];
    if (replicas.find((each) => each.identity === this.replicas.self)?.role !== "standby") return null;
    const leader = replicas.find((each) => each.role === "leader");
    return h("div.notice", { "data-state": "waiting" }, icon("waiting"),
      h("p", {}, h("b", {}, "This replica stands by. "), leader
        ? `${leader.identity} leads${leader.address ? ` at ${leader.address}` : ""}; its page shows the decisions.`
        : "It decides nothing while another one leads."));
  }

  updateFoot() {
    const { version } = this;
    const replicas = this.replicas?.items ?? [];
    show($("foot"),
      h("span", {}, "hpad ", version?.version, version?.commit && ` (${version.commit.slice(0, 9)})`,
        version && `, decides as Kubernetes ${version.kubernetes}`),
      this.facts?.facts?.filter((fact) => !fact.startsWith("version ")).map((fact) => h("span", {}, fact)),
      replicas.length > 1 && h("span", {}, replicas.map((each) =>
        `${each.identity}: ${each.role}${each.owned === undefined ? "" : ` of ${plural(each.owned, "HPA")}`}`).join("; ")),
      h("span", {}, `times in ${Intl.DateTimeFormat().resolvedOptions().timeZone}`),
      h("span.links", {},
        h("a", { href: `${API}openapi.json` }, "API"),
        h("a", { href: `${ROOT}metrics` }, "Metrics"),
        h("a", { href: `${ROOT}readyz` }, "Health")));
  }
}
