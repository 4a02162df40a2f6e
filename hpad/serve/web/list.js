// The list of HPAs. Only the rows in sight are in the document.

const [AHEAD, BEHIND] = [8, 2]; // rows beyond those in sight, where the list is scrolled to and where it comes from
const FILL = 4; // of these in one frame
const REST = 150; // milliseconds without a new row, after which the list does not scroll any more
const MOST_CAUSES = 3;
const still = matchMedia("(prefers-reduced-motion: reduce)");

// Draws attention to a count that has changed.
function flash(element) {
  if (!still.matches) element.animate([{ color: "var(--accent)", scale: 1.15 }, {}], { duration: 900, easing: "ease-out" });
}

const interval = (first, last) => new Set(Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => first + index));

// The longest part of these different numbers, in their order, in which each is greater than the one before.
function ascending(numbers) {
  const best = numbers.map((number) => ({ number, length: 1, before: null }));
  best.forEach((each, index) => {
    for (const other of best.slice(0, index)) {
      if (other.number < each.number && other.length >= each.length) Object.assign(each, { length: other.length + 1, before: other });
    }
  });
  let last = best.reduce((most, each) => (each.length > (most?.length ?? 0) ? each : most), null);
  const found = new Set();
  for (; last; last = last.before) found.add(last.number);
  return found;
}

class ListPage {
  constructor(model) {
    this.model = model;
    this.active = 0;
    this.views = new Map(); // the rows in the document, by their places in the list
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
    this.body.addEventListener("pointerover", ({ target }) => this.views.get(Number(target.closest(".row")?.dataset.index))?.explain());
    this.views.clear();
    this.sorted = null;
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
    clearTimeout(this.sorting);
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
              Object.entries(ORDERS).map(([name, { label }]) => h("option", { value: name }, label))))),
        h("div.segments.kinds", { role: "group", "aria-label": "Filter by kind", "data-own": true })),
      h("div.filters", { role: "group", "aria-label": "Filter by state", "data-own": true }),
      h("ul.causes", { "aria-label": "Causes of failures", "data-own": true }),
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
    this.updateKinds();
    this.updateCauses();
    this.updateHead();
    const grid = this.root.querySelector(".grid");
    grid.classList.toggle("mixed", model.kinds.size > 1);
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
      h("p", {}, "hpad shows every HorizontalPodAutoscaler and Autoscaler that it sees here. One for the CPU usage of a Deployment is made by"),
      // Without a flag for the CPU: its name differs between the versions of kubectl. The API server sets 80%.
      h("pre", {}, "kubectl autoscale deployment web --min=2 --max=10"));
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
    const shown = FILTERS.filter((state) => !["paused", "shadow"].includes(state) || counts[state]);
    show(this.root.querySelector(".filters"), tile(null, "All", counts.all ?? 0),
      shown.map((state) => tile(state, STATES[state].label, counts[state] ?? 0)));
  }

  // Where there are both kinds, which of them is shown.
  updateKinds() {
    const { kind, kinds } = this.model;
    const button = (value, label) =>
      h("button", { type: "button", "data-do": "kind", "data-kind": value ?? "", "aria-pressed": String(kind === value), "data-key": label }, label);
    const root = this.root.querySelector(".kinds");
    root.hidden = kinds.size < 2 && !kind;
    show(root, button(null, "All kinds"), Object.entries(KINDS).map(([value, label]) => button(value, label)));
  }

  // Each cause that several HPAs have, with their number; it searches for them.
  updateCauses() {
    const causes = this.model.causes();
    show(this.root.querySelector(".causes"), causes.slice(0, MOST_CAUSES).map(([cause, number]) =>
      h("li", { "data-key": cause }, h("button", { type: "button", "data-do": "cause", "data-cause": cause, title: cause },
        icon("failing"), h("b.number", {}, plural(number, "HPA")), h("span", {}, cause)))),
      causes.length > MOST_CAUSES && h("li.quiet", {}, plural(causes.length - MOST_CAUSES, "more cause")));
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
    return [...this.views.values()].map((view) => view.key);
  }

  // Makes the document have the rows in sight and the active one, which may have the focus. Rows beyond those in sight
  // are filled a few at a time, in frames in which none in sight is missing. All reading of the layout comes first.
  render() {
    const { order } = this.model;
    const above = -this.body.getBoundingClientRect().top;
    const height = (this.rowHeight ??= parseFloat(getComputedStyle(this.body).getPropertyValue("--row-height")));
    const down = above >= this.above;
    this.above = above;
    this.body.style.height = `${order.length * height}px`;

    const first = Math.max(0, Math.floor(above / height));
    const last = Math.min(order.length, Math.ceil((above + innerHeight) / height)) - 1;
    const sight = interval(first, last);
    if (order.length) sight.add(this.active);
    const [before, after] = down ? [BEHIND, AHEAD] : [AHEAD, BEHIND];
    const around = interval(Math.max(0, first - before), Math.min(order.length - 1, last + after));
    const wanted = sight.union(around);

    const moved = this.sorted !== order;
    this.sorted = order;
    if (moved) this.reorder(wanted);
    const missing = [...sight.difference(this.views)];
    const spare = [...wanted.difference(this.views)];
    const now = moved ? spare : missing.length ? missing : spare.slice(0, FILL);
    if (now.length < spare.length) this.schedule();
    this.fill(now, wanted);
    for (const [index, view] of this.views) view.set(this.model.rows.get(order[index]), index, index === this.active, height);
    if (moved) this.sortElements();
    else if (now.length) {
      clearTimeout(this.sorting);
      this.sorting = setTimeout(() => this.sortElements(), REST);
    }
  }

  // After a change of the order: a row that is still wanted stays that of its HPA.
  reorder(wanted) {
    const places = new Map([...wanted].map((index) => [this.model.order[index], index]));
    const known = [...this.views.values()];
    this.views = new Map(known.filter((view) => places.has(view.key)).map((view) => [places.get(view.key), view]));
    for (const view of known) if (!places.has(view.key)) view.element.remove();
  }

  // Gives each of these places a row: one that is neither in sight nor near, or a new one.
  fill(indexes, wanted) {
    const free = [...this.views.keys()].filter((index) => !wanted.has(index));
    for (const index of indexes) {
      const from = free.pop();
      const view = this.views.get(from) ?? new RowView();
      if (!view.element.isConnected) this.body.append(view.element);
      this.views.delete(from);
      this.views.set(index, view);
    }
  }

  // Puts the rows into the order of the list, which screen readers follow. While the list scrolls, rows only change their
  // contents and their place on the screen: to take one out of the document and put it elsewhere costs as much as a new one.
  sortElements() {
    const focused = document.activeElement;
    const stay = ascending([...this.body.children].map((element) => Number(element.dataset.index)));
    let next = null;
    for (const index of [...this.views.keys()].sort((one, other) => other - one)) {
      const { element } = this.views.get(index);
      if (!stay.has(index)) this.body.insertBefore(element, next);
      next = element;
    }
    if (this.body.contains(focused) && focused !== document.activeElement) focused.focus({ preventScroll: true });
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
    this.views.get(this.active).link.focus({ preventScroll: true });
  }
}
