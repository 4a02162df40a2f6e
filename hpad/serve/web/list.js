// The list of HPAs. Only the rows in sight are in the document.

const OVERSCAN = 4; // rows beyond those in sight
const still = matchMedia("(prefers-reduced-motion: reduce)");

// Draws attention to a count that has changed.
function flash(element) {
  if (!still.matches) element.animate([{ color: "var(--accent)", scale: 1.15 }, {}], { duration: 900, easing: "ease-out" });
}

class ListPage {
  constructor(model) {
    this.model = model;
    this.active = 0;
    this.elements = new Map();
    this.scheduled = false;
    this.root = null;
    this.onScroll = () => this.schedule();
    this.onResize = () => {
      this.rowHeight = null;
      this.schedule();
    };
  }

  enter(main) {
    this.root = main;
    show(main, this.frame());
    this.body = main.querySelector(".rows");
    this.elements.clear();
    this.rowHeight = null;
    addEventListener("scroll", this.onScroll, { passive: true });
    addEventListener("resize", this.onResize, { passive: true });
    this.arrange();
    this.update();
    this.render();
    if (this.scrolled) {
      scrollTo(0, this.scrolled); // now that the rows give the page its height
      this.render();
    }
  }

  leave() {
    this.scrolled = scrollY;
    removeEventListener("scroll", this.onScroll);
    removeEventListener("resize", this.onResize);
  }

  frame() {
    const column = (name, label, sort) =>
      h("div.cell", { role: "columnheader", class: name, "data-sort": sort }, sort
        ? h("button", { type: "button", "data-do": "sort", "data-by": sort }, label, icon("down"))
        : h("span", {}, label));
    return [
      h("div.lead", {},
        h("div.doing", {}, h("h1", { "data-own": true }, "HPAs"), h("p.quiet", { "data-own": true, id: "doing" })),
        h("div.order", {},
          h("label", {}, "Order ",
            h("select", { id: "order", "data-change": "order" },
              Object.entries(ORDERS).map(([name, { label }]) => h("option", { value: name }, label)))))),
      h("div.filters", { role: "group", "aria-label": "Filter by state", "data-own": true }),
      h("div.pill", { "data-own": true, hidden: true }),
      h("div.grid", { role: "grid", "aria-label": "HPAs", "data-own": true },
        h("div.head", { role: "row", "aria-rowindex": 1 },
          column("state", h("span.hidden", {}, "State"), null),
          column("name", "Name", "name"),
          column("replicas", "Replicas", "replicas"),
          column("metrics", "Metrics", null),
          column("decision", "Last decision", "state"),
          column("time", "When", "rescale")),
        h("div.rows", { role: "rowgroup" })),
      h("div", { "data-own": true, class: "none" }),
    ];
  }

  // Shows what the model has now. Where the order would change while somebody reads, a button offers it.
  update() {
    if (!this.root) return;
    const { model } = this;
    if (model.outdated && (!model.complete || !this.reading())) this.arrange();
    this.updateFilters();
    this.updateHead();
    const grid = this.root.querySelector(".grid");
    grid.setAttribute("aria-rowcount", model.order.length + 1);
    grid.hidden = model.order.length === 0;
    this.active = Math.min(this.active, Math.max(0, model.order.length - 1));
    const pill = this.root.querySelector(".pill");
    pill.hidden = !model.outdated;
    show(pill, model.outdated && h("button", { type: "button", "data-do": "arrange" }, "The list has changed. Update it"));
    show(this.root.querySelector(".none"), model.order.length === 0 && this.nothing());
    this.schedule();
  }

  // Sorts and filters anew; the active row stays the active one.
  arrange() {
    const key = this.model.order[this.active];
    this.model.arrange();
    this.active = Math.max(0, this.model.order.indexOf(key));
  }

  reading() {
    return scrollY > 0 || this.body.contains(document.activeElement) || this.body.matches(":hover");
  }

  nothing() {
    const { model } = this;
    if (!model.complete) return h("div.empty.loading", {}, h("p", {}, "Loading the HPAs …"));
    if (model.rows.size) {
      return h("div.empty", {}, icon("search"), h("h2", {}, "No HPA matches"),
        h("p", {}, "Other words, or another filter, find more."),
        h("button.button", { type: "button", "data-do": "clear" }, "Show all HPAs"));
    }
    return h("div.empty", {}, icon("logo"), h("h2", {}, "No HPA yet"),
      h("p", {}, "hpad shows every HorizontalPodAutoscaler that it sees here. One for a deployment is made by"),
      h("pre", {}, "kubectl autoscale deployment web --cpu=60% --min=2 --max=10"));
  }

  updateFilters() {
    const counts = this.model.tally();
    const tile = (state, label, number) => {
      const pressed = state === null ? this.model.states.size === 0 : this.model.states.has(state);
      return h("button.filter", {
        type: "button", "data-do": "filter", "data-state": state ?? "all", "aria-pressed": String(pressed),
        class: number ? null : "zero", "data-key": state ?? "all",
      }, h("span.label", {}, state && icon(state), label), h("span.number", {}, count(number)));
    };
    const shown = FILTERS.filter((state) => state !== "paused" || counts.paused);
    show(this.root.querySelector(".filters"), tile(null, "All", counts.all ?? 0),
      shown.map((state) => tile(state, STATES[state].label, counts[state] ?? 0)));
  }

  updateHead() {
    const { sort, reverse } = this.model;
    this.root.querySelector("#order").value = sort;
    for (const cell of this.root.querySelectorAll(".head [data-sort]")) {
      if (cell.dataset.sort !== sort) cell.removeAttribute("aria-sort");
      else cell.setAttribute("aria-sort", reverse === (sort === "name") ? "descending" : "ascending");
    }
  }

  schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      if (this.root?.contains(this.body)) this.render();
    });
  }

  // The keys of the rows in the document.
  shownKeys() {
    return [...this.elements.keys()];
  }

  // Makes the document have the rows in sight, and the active one, which may have the focus.
  render() {
    const { order } = this.model;
    const height = (this.rowHeight ??= parseFloat(getComputedStyle(this.body).getPropertyValue("--row-height")));
    this.body.style.height = `${order.length * height}px`;
    const above = -this.body.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(above / height) - OVERSCAN);
    const last = Math.min(order.length - 1, Math.ceil((above + innerHeight) / height) + OVERSCAN);
    const wanted = new Set();
    for (let index = first; index <= last; index += 1) wanted.add(index);
    if (order.length) wanted.add(this.active);
    const kept = new Set();
    for (const index of wanted) kept.add(this.place(order[index], index, height));
    for (const [key, { element }] of this.elements) {
      if (kept.has(key)) continue;
      element.remove();
      this.elements.delete(key);
    }
    if (this.sorted !== order) this.sortElements();
    this.sorted = order;
  }

  // Puts the rows in the document into the order of the list, which screen readers follow.
  sortElements() {
    const focused = document.activeElement;
    const rows = [...this.elements.values()].sort((one, other) => one.index - other.index);
    rows.forEach(({ element }, index) => {
      if (this.body.children[index] !== element) this.body.insertBefore(element, this.body.children[index]);
    });
    if (this.body.contains(focused)) focused.focus({ preventScroll: true });
  }

  place(key, index, height) {
    const row = this.model.rows.get(key);
    const active = index === this.active;
    const known = this.elements.get(key);
    if (known && known.row === row && known.index === index && known.active === active && known.height === height) {
      return key;
    }
    const fresh = hpaRow(row, index, active);
    fresh.style.transform = `translateY(${index * height}px)`;
    if (known) {
      morph(known.element, fresh);
      if (known.row.currentReplicas !== row.currentReplicas) flash(known.element.querySelector(".count"));
    } else this.body.insertBefore(fresh, this.following(index));
    this.elements.set(key, { element: known?.element ?? fresh, row, index, active, height });
    return key;
  }

  // The first row in the document that comes after this index: rows stand in the order of the list.
  following(index) {
    return [...this.body.children].find((each) => Number(each.dataset.index) > index) ?? null;
  }

  // Moves the active row, and the focus with it.
  move(by) {
    const { order } = this.model;
    if (!order.length) return;
    const focused = this.body.contains(document.activeElement);
    this.active = focused ? Math.max(0, Math.min(order.length - 1, this.active + by)) : this.firstInSight();
    this.focus();
  }

  firstInSight() {
    const above = this.stickyBottom() - this.body.getBoundingClientRect().top;
    const first = Math.ceil(above / this.rowHeight);
    return Math.max(0, Math.min(this.model.order.length - 1, first));
  }

  stickyBottom() {
    return this.root.querySelector(".head").getBoundingClientRect().bottom;
  }

  focus() {
    const top = this.body.getBoundingClientRect().top + this.active * this.rowHeight;
    const hidden = this.stickyBottom() - top;
    const below = top + this.rowHeight - innerHeight + 8;
    if (hidden > 0) scrollBy(0, -hidden - 4);
    else if (below > 0) scrollBy(0, below);
    this.render();
    this.elements.get(this.model.order[this.active]).element.querySelector("a").focus({ preventScroll: true });
  }
}
