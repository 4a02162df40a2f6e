// The chart of one HPA: replicas, bounds, proposals, and a lane with the rescales and failures.

const ROOM = { top: 14, right: 14, bottom: 46 };
const DIGIT = 7; // pixels
const LANE = 18; // height of the lane of marks, above the times
const NEAR = 9; // pixels within which marks are one, and the pointer meets a mark

class Chart {
  // `pick` is called with the entry that the reader chooses.
  constructor(root, pick) {
    this.root = root;
    this.pick = pick;
    this.data = null;
    this.cursor = null;
    this.svg = h("svg", { "aria-hidden": "true", focusable: "false" });
    this.tip = h("div.tip", { hidden: true });
    root.append(this.svg, this.tip);
    root.addEventListener("pointermove", (event) => this.point(event));
    root.addEventListener("pointerleave", () => this.moveTo(null));
    root.addEventListener("pointerup", (event) => this.choose(event));
    root.addEventListener("keydown", (event) => this.key(event));
    root.addEventListener("blur", () => this.moveTo(null));
    new ResizeObserver(() => this.draw()).observe(root);
  }

  // Not on "click": there is none if the chart is drawn anew between press and release.
  choose(event) {
    if (event.button !== 0) return;
    this.point(event);
    if (this.cursor) this.pick(this.cursor);
  }

  // `lines` as from seriesOf; `hidden` are the addresses of metrics that are not drawn; `selected` is a time or null.
  set(data) {
    this.data = data;
    this.draw();
  }

  x(time) {
    const { from, to } = this.data;
    return this.left + ((time - from) / (to - from)) * (this.width - this.left - ROOM.right);
  }

  time(x) {
    const { from, to } = this.data;
    return from + ((x - this.left) / (this.width - this.left - ROOM.right)) * (to - from);
  }

  y(number) {
    const floor = this.height - ROOM.bottom;
    return floor - (Math.min(number, this.top) / this.top) * (floor - ROOM.top);
  }

  draw() {
    this.width = this.root.clientWidth;
    this.height = this.root.clientHeight;
    if (!this.data || this.width < 80) return;
    this.top = topOf(this.data.lines);
    this.left = 16 + DIGIT * count(Math.floor(this.top)).length;
    this.marks = this.findMarks();
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    show(this.svg, this.definitions(), this.axes(), this.bounds(), this.failures(), this.metricLines(), this.replicaLine(),
      this.beyondMarks(), this.laneMarks(), this.selection(), h("g.cursor", { "data-key": "cursor" }));
    this.describe();
    if (this.cursor) this.moveTo(this.cursor);
  }

  definitions() {
    return h("defs", { "data-key": "defs" },
      h("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        h("line.hatch", { x1: 0, y1: 0, x2: 0, y2: 6 })),
      h("clipPath", { id: "plot" }, h("rect", {
        x: this.left, y: 0, width: Math.max(0, this.width - this.left - ROOM.right), height: this.height,
      })));
  }

  axes() {
    const { from, to } = this.data;
    const floor = this.height - ROOM.bottom;
    const right = this.width - ROOM.right;
    return h("g.axes", { "data-key": "axes" },
      countTicks(this.top).map((number) => h("g", {},
        h("line", { x1: this.left, x2: right, y1: this.y(number), y2: this.y(number), class: number === 0 ? "zero" : null }),
        h("text", { x: this.left - 8, y: this.y(number) + 4, "text-anchor": "end" }, count(number)))),
      timeTicks(from, to, Math.max(2, Math.floor(this.width / 90))).map(([time, label]) => h("g", {},
        h("line.time", { x1: this.x(time), x2: this.x(time), y1: ROOM.top, y2: floor }),
        h("text", { x: this.x(time), y: this.height - 6, "text-anchor": "middle" }, label))));
  }

  // A path of steps through the points of a line, from its first time to `until`.
  steps(line, until) {
    let path = "";
    let drawing = false;
    for (const [time, number] of line) {
      const x = this.x(time).toFixed(1);
      if (drawing) path += `H${x}`;
      if (number !== null) path += drawing ? `V${this.y(number).toFixed(1)}` : `M${x} ${this.y(number).toFixed(1)}`;
      drawing = number !== null;
    }
    return drawing ? `${path}H${this.x(until).toFixed(1)}` : path;
  }

  // The pieces of a line as closed areas down to another line, or to zero.
  area(line, until, floor = () => 0) {
    let path = "";
    line.forEach(([time, number], index) => {
      if (number === null) return;
      const end = line[index + 1]?.[0] ?? until;
      const low = this.y(floor(time) ?? 0).toFixed(1);
      path += `M${this.x(time).toFixed(1)} ${low}V${this.y(number).toFixed(1)}H${this.x(end).toFixed(1)}V${low}Z`;
    });
    return path;
  }

  bounds() {
    const { lines } = this.data;
    const { until } = lines;
    const most = lines.max.at(-1)?.[1];
    const least = lines.min.at(-1)?.[1];
    const beyond = most > this.top;
    return h("g.bounds", { "data-key": "bounds", "clip-path": "url(#plot)" },
      h("path.band", { d: this.area(lines.max, until, (time) => valueAt(lines.min, time)) }),
      !beyond && h("path.bound", { d: this.steps(lines.max, until) }),
      h("path.bound", { d: this.steps(lines.min, until) }),
      most !== undefined && most !== null &&
        h("text", { x: this.left + 6, y: Math.max(ROOM.top - 3, this.y(most) - 5) }, beyond ? `max ${count(most)} ↑` : `max ${count(most)}`),
      least > 0 && h("text", { x: this.left + 6, y: this.y(least) + 13 }, `min ${count(least)}`));
  }

  failures() {
    const floor = this.height - ROOM.bottom;
    return h("g.failures", { "data-key": "failures", "clip-path": "url(#plot)" }, failuresOf(this.data.lines.entries).map(([start, end]) => {
      const x = this.x(Math.max(start, this.data.from));
      return h("rect", { x, y: ROOM.top, width: Math.max(2, this.x(end) - x), height: floor - ROOM.top });
    }));
  }

  metricLines() {
    const { lines, hidden } = this.data;
    return h("g.metrics", { "data-key": "metrics", "clip-path": "url(#plot)" },
      [...lines.metrics].map(([address, line], index) => !hidden.has(address) &&
        h("path", { "data-key": address, "data-line": index % LINES, d: this.steps(line, lines.until) })));
  }

  // An arrow and the largest count for proposals that the scale has no room for; of marks that would touch, the largest.
  beyondMarks() {
    const { lines, hidden } = this.data;
    const found = [...lines.metrics].flatMap(([address, line], index) => hidden.has(address) ? []
      : stretchesAbove(line, this.top, lines.until).map(({ from, to, peak }) => ({ index, peak, x: (this.x(from) + this.x(to)) / 2 })));
    const placed = [];
    for (const each of found.sort((one, other) => other.peak - one.peak)) {
      each.width = 16 + DIGIT * count(each.peak).length;
      each.x = Math.min(each.x, this.width - ROOM.right - each.width);
      if (placed.every((other) => each.x + each.width < other.x || other.x + other.width < each.x)) placed.push(each);
    }
    return h("g.beyond", { "data-key": "beyond" }, placed.map(({ index, peak, x }) =>
      h("g", { style: { "--color": `var(--line-${index % LINES})` } },
        h("polygon", { points: "-4,4 4,4 0,-4", transform: `translate(${(x + 4).toFixed(1)} ${ROOM.top + 8})` }),
        h("text", { x: x + 12, y: ROOM.top + 12 }, count(peak)))));
  }

  replicaLine() {
    const { replicas, shadow, until } = this.data.lines;
    return h("g.replicas", { "data-key": "replicas", "clip-path": "url(#plot)" },
      h("path.fill", { d: this.area(replicas, until) }), h("path.line", { d: this.steps(replicas, until) }),
      h("path.shadow", { d: this.steps(shadow, until) }));
  }

  // The rescales, those that are too close to each other as one: {x, entries, up, down}.
  findMarks() {
    const marks = [];
    for (const entry of this.data.lines.entries) {
      if (!isRescale(entry) || began(entry) < this.data.from) continue;
      const x = this.x(began(entry));
      const last = marks.at(-1);
      if (last && x - last.first < NEAR) last.entries.push(entry);
      else marks.push({ first: x, entries: [entry] });
    }
    return marks.map(({ first, entries }) => ({
      x: (first + this.x(began(entries.at(-1)))) / 2,
      entries,
      up: entries.some((entry) => entry.action === "scale_up"),
      down: entries.some((entry) => entry.action === "scale_down"),
    }));
  }

  laneMarks() {
    const y = this.height - ROOM.bottom + LANE / 2 + 4;
    const shape = { up: "-4.5,4 4.5,4 0,-4.5", down: "-4.5,-4 4.5,-4 0,4.5", both: "-5,0 0,-5 5,0 0,5" };
    return h("g.marks", { "data-key": "marks" }, this.marks.map((mark) => {
      const kind = mark.up && mark.down ? "both" : mark.up ? "up" : "down";
      return h("polygon", { class: kind, points: shape[kind], transform: `translate(${mark.x.toFixed(1)} ${y})` });
    }));
  }

  selection() {
    const { selected } = this.data;
    if (selected === null || selected < this.data.from) return null;
    const x = this.x(selected);
    return h("g.selection", { "data-key": "selection" },
      h("line", { x1: x, x2: x, y1: ROOM.top, y2: this.height - ROOM.bottom + LANE }));
  }

  // What the reader points at: the rescale of a mark nearby, else the decision in force at that time.
  point(event) {
    const { entries } = this.data?.lines ?? {};
    if (!entries?.length) return;
    const x = event.clientX - this.root.getBoundingClientRect().left;
    const near = this.marks.filter((mark) => Math.abs(mark.x - x) < NEAR);
    const nearest = near.sort((one, other) => Math.abs(one.x - x) - Math.abs(other.x - x))[0];
    if (nearest) this.moveTo(nearest.entries.at(-1), nearest);
    else this.moveTo(entryAt(entries, this.time(x)), null, x);
  }

  key(event) {
    const { entries } = this.data?.lines ?? {};
    if (!entries?.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const now = this.cursor ? entries.findIndex((entry) => entry.began === this.cursor.began) : entries.length;
    const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: entries.length - 1, PageUp: now - 10, PageDown: now + 10 };
    if (event.key === "Enter" && this.cursor) this.pick(this.cursor);
    else if (event.key in to) this.moveTo(entries[Math.max(0, Math.min(entries.length - 1, to[event.key]))]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // Puts cursor and tooltip at an entry. `mark` are the rescales that are one mark; `x` is that of the pointer.
  moveTo(entry, mark = null, x = null) {
    this.cursor = entry ?? null;
    this.tip.hidden = !entry;
    const cursor = this.svg.querySelector(".cursor");
    if (!cursor) return;
    if (!entry) return show(cursor);
    const place = x ?? mark?.x ?? this.x(Math.max(began(entry), this.data.from));
    const time = x === null ? began(entry) : this.time(place);
    show(cursor, h("line", { x1: place, x2: place, y1: ROOM.top, y2: this.height - ROOM.bottom + LANE }),
      entry.current !== undefined && h("circle", { cx: place, cy: this.y(entry.current), r: 3.5 }));
    show(this.tip, this.tooltip(entry, mark, time));
    const left = Math.max(4, Math.min(place + 14, this.width - this.tip.offsetWidth - 4));
    const flipped = place + 14 + this.tip.offsetWidth > this.width ? Math.max(4, place - this.tip.offsetWidth - 14) : left;
    this.tip.style.transform = `translate(${Math.round(flipped)}px, ${ROOM.top}px)`;
    this.describe();
  }

  tooltip(entry, mark, time) {
    const { lines, hidden } = this.data;
    const change = entry.desired !== entry.current ? `${count(entry.current)} → ${count(entry.desired)}` : countOf(entry);
    return [
      h("header", {}, h("b", {}, change), h("span", {}, moment(time))),
      entry.target !== undefined && h("p.quiet", {}, `in shadow; the target has ${plural(entry.target, "replica")}`),
      h("p", {}, entry.sentence),
      mark?.entries.length > 1 && h("p.quiet", {}, `The last of ${mark.entries.length} rescales from ${clock(began(mark.entries[0]))} on.`),
      h("ul", {}, [...lines.metrics].map(([address, line], index) => {
        const number = valueAt(line, Math.max(time, began(entry)));
        return !hidden.has(address) && number !== null &&
          h("li", {}, swatch(index), h("span", {}, address), h("b", {}, count(number)));
      })),
    ];
  }

  // For screen readers the chart is a slider over the decisions.
  describe() {
    const { entries } = this.data.lines;
    const index = this.cursor ? entries.findIndex((entry) => entry.began === this.cursor.began) : entries.length - 1;
    const entry = entries[index];
    this.root.setAttribute("aria-valuemin", 0);
    this.root.setAttribute("aria-valuemax", Math.max(0, entries.length - 1));
    this.root.setAttribute("aria-valuenow", Math.max(0, index));
    this.root.setAttribute("aria-valuetext", entry
      ? harmless(`${moment(began(entry))}: ${entry.current === undefined ? "" : `${plural(entry.current, "replica")}. `}${entry.sentence}`) : "no decision in this time");
  }
}

function swatch(index, kind = "own") {
  return h("svg.swatch", { viewBox: "0 0 18 8", "aria-hidden": "true" },
    h("line", { x1: 0, x2: 18, y1: 4, y2: 4, "data-line": index === null ? null : index % LINES, class: index === null ? kind : null }));
}
