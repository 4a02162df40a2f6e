// One row of the list. Its nodes are made once: while the list scrolls, they show one HPA after another, and only the
// texts and widths that differ are written.

const write = (text, value) => {
  const safe = harmless(value);
  if (text.data !== safe) text.data = safe;
};
const hide = (element, hidden) => {
  if (element.hidden !== hidden) element.hidden = hidden;
};

// An element and its only text.
function lettered(tag, attributes = {}) {
  const element = h(tag, attributes, " ");
  return [element, element.firstChild];
}

// A metric with its usage beside its target. The bar is half full at the target.
class MetricView {
  constructor() {
    const [name, nameText] = lettered("span.name");
    const [current, currentText] = lettered("span.value");
    const [of, ofText] = lettered("span.of");
    this.bar = h("span.meter", { "aria-hidden": "true" });
    current.append(of);
    this.element = h("span.metric", { hidden: true }, name, this.bar, current);
    Object.assign(this, { nameText, currentText, ofText });
  }

  set(metric) {
    hide(this.element, !metric);
    if (!metric) return;
    const { ratio } = metric;
    const known = ratio >= 0;
    write(this.nameText, metric.address);
    write(this.currentText, metric.current ?? "–");
    write(this.ofText, metric.target ? ` / ${metric.target}` : "");
    this.bar.classList.toggle("none", !known);
    this.bar.classList.toggle("over", ratio > 1.1);
    this.bar.style.backgroundSize = known ? `${Math.min(100, ratio * 50)}% 100%` : "0";
  }
}

// A <time> as of timeAgo; hidden without a time.
class TimeView {
  constructor() {
    [this.element, this.text] = lettered("time", { hidden: true });
  }

  set(time) {
    if (time === this.time) return;
    this.time = time;
    hide(this.element, !time);
    if (!time) return delete this.element.dataset.ago;
    const at = Date.parse(time);
    this.element.dateTime = time;
    this.element.dataset.ago = at;
    write(this.text, ago(at));
  }
}

class RowView {
  constructor() {
    const cell = (name, ...content) => h("div.cell", { role: "gridcell", class: name }, content);
    [this.namespace, this.namespaceText] = lettered("span");
    [this.target, this.targetText] = lettered("span.quiet");
    [this.link, this.linkText] = lettered("a.title", { href: "#/" });
    this.kind = h("span.kind", { hidden: true }, AUTOSCALER);
    this.link.append(this.kind);
    [this.bounds, this.boundsText] = lettered("span.bounds");
    this.places = h("span.sub", {}, this.namespace, this.target);
    this.state = cell("state");
    this.count = h("span.replicas-now");
    this.fill = h("span.fill");
    this.least = h("span.min");
    this.desired = h("span.desired", { hidden: true });
    this.metrics = [new MetricView(), new MetricView()];
    [this.more, this.moreText] = lettered("span.more", { hidden: true });
    this.badges = h("span.badges");
    [this.says, this.saysText] = lettered("span");
    this.sentence = h("span.sentence", {}, this.badges, this.says);
    this.decided = new TimeView();
    this.rescaled = new TimeView();
    this.scaled = h("span.quiet", { hidden: true }, "scaled ", this.rescaled.element);
    this.element = h("div.row", { role: "row" }, this.state,
      cell("name", this.places, this.link),
      cell("replicas", this.count, h("span.range", { "aria-hidden": "true" },
        h("span.bar", {}, this.fill, this.least, this.desired), this.bounds)),
      cell("metrics", this.metrics.map(({ element }) => element), this.more),
      cell("decision", this.sentence),
      cell("time", this.decided.element, this.scaled));
    this.row = null;
  }

  get key() {
    return this.row.key;
  }

  // Shows an HPA at its place: `index` counts from 0, `active` is the row that the keyboard is at.
  set(row, index, active, height) {
    if (index !== this.index || height !== this.height) {
      this.element.style.transform = `translateY(${index * height}px)`;
      this.element.setAttribute("aria-rowindex", index + 2);
      this.element.dataset.index = index;
    }
    if (active !== this.active) {
      this.link.tabIndex = active ? 0 : -1;
      this.element.classList.toggle("active", active);
    }
    Object.assign(this, { index, height, active });
    if (row === this.row) return;
    const changed = this.row?.key === row.key && this.row.currentReplicas !== row.currentReplicas;
    this.row = row;
    this.setName();
    this.setReplicas();
    this.setMetrics();
    this.setDecision();
    if (changed) flash(this.count.firstChild);
  }

  setName() {
    const { row } = this;
    this.element.dataset.key = row.key;
    write(this.namespaceText, row.namespace);
    write(this.targetText, targetName(row));
    write(this.linkText, row.kind === AUTOSCALER ? `${row.name} ` : row.name);
    hide(this.kind, row.kind !== AUTOSCALER);
    this.link.href = hpaLink(row);
  }

  setReplicas() {
    const { row } = this;
    const most = Math.max(row.maxReplicas, row.currentReplicas, 1);
    const part = (number) => `${(100 * number) / most}%`;
    // Most counts are one number; arrows and question marks are built anew.
    const plain = !unknownCount(row) && !moves(row);
    if (plain && this.plain) write(this.count.firstChild.firstChild, count(row.currentReplicas));
    else show(this.count, replicaCount(row));
    this.plain = plain;
    this.fill.style.width = part(row.currentReplicas);
    this.least.style.left = part(row.minReplicas);
    hide(this.desired, !moves(row));
    if (!this.desired.hidden) this.desired.style.left = part(wanted(row));
    write(this.boundsText, `${count(row.minReplicas)}–${count(row.maxReplicas)}`);
  }

  setMetrics() {
    const [shown, more] = shownMetrics(this.row);
    this.metrics.forEach((view, index) => view.set(shown[index]));
    hide(this.more, !more);
    if (more) write(this.moreText, `and ${plural(more, "more metric")}`);
  }

  setDecision() {
    const { row } = this;
    const last = row.lastDecision;
    const states = `${shownStates(row)} ${Boolean(last)}`;
    if (states !== this.states) {
      this.states = states;
      show(this.state, stateMark(row));
      show(this.badges, shownStates(row).map(stateBadge));
    }
    write(this.saysText, withoutLongWords([briefOf(row), ...notesOf(row)].join("; ")));
    this.says.classList.toggle("quiet", !last);
    this.decided.set(last?.time);
    this.rescaled.set(row.lastScaleTime);
    hide(this.scaled, !row.lastScaleTime);
  }

  // Gives the texts that may be cut off, and the times, their titles: when the pointer comes, not while the list scrolls.
  explain() {
    for (const { element, nameText } of this.metrics) element.title = nameText.data;
    this.link.title = this.linkText.data.trim();
    this.sentence.title = harmless([this.row.lastDecision?.sentence ?? briefOf(this.row), ...notesOf(this.row)].join("; "));
    this.places.title = `${this.namespaceText.data} · ${this.targetText.data}`;
    for (const { element } of [this.decided, this.rescaled]) {
      if (!element.hidden) element.title = moment(Number(element.dataset.ago));
    }
  }
}
