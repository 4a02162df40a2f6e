// What the page knows of all HPAs: their summaries by key, the filters, and the order of the list.

const STATES = {
  failing: { label: "Failing", text: "The last decision failed, at least in part." },
  atMax: { label: "At max", text: "The replica count is at maxReplicas." },
  limited: { label: "Limited", text: "The metrics ask for a count that the maximum or the policies do not allow." },
  fallback: { label: "Fallback", text: "A fallback replaces a metric that cannot be read." },
  competing: { label: "Competing", text: "Another client writes the replica count or the status." },
  paused: { label: "Paused", text: "hpad does not scale this HPA for now." },
  shadow: { label: "Shadow", text: "hpad decides for a count of its own, and leaves the target alone." },
  dryRun: { label: "Dry run", text: "hpad decides, but writes nothing." },
};
const FILTERS = ["failing", "atMax", "limited", "fallback", "competing", "paused", "shadow"];
const SEVERITY = Object.keys(STATES);

const HPA = "HorizontalPodAutoscaler";
const AUTOSCALER = "Autoscaler";
const KINDS = { [HPA]: "HPAs", [AUTOSCALER]: "Autoscalers" };

// As the API names an HPA in texts: an HPA and an Autoscaler may have the same name.
const keyOf = ({ namespace, name, kind }) => `${namespace}/${kind === AUTOSCALER ? `autoscaler/${name}` : name}`;
const severity = (row) => {
  const found = SEVERITY.findIndex((state) => row.states.includes(state));
  return found < 0 ? SEVERITY.length : found;
};
const decided = (row) => Date.parse(row.lastDecision?.time ?? "") || 0;
const rescaled = (row) => Date.parse(row.lastScaleTime ?? "") || 0;

// How full the range of the HPA is: 0 at the minimum, 1 at the maximum.
const fullness = (row) => (row.desiredReplicas - row.minReplicas) / Math.max(1, row.maxReplicas - row.minReplicas);

const fails = (row) => row.states.includes("failing");

const byText = (one, other) => (one < other ? -1 : one > other ? 1 : 0);
const byName = (one, other) => byText(one.sortName, other.sortName);
const byCause = (one, other) => fails(other) - fails(one) || byText(one.cause, other.cause);
// The page sorts as well, because it has all HPAs and gets decisions one by one. `sort` is the order of the API that is
// asked for the first rows, before all are there.
const ORDERS = {
  failing: { label: "Failing first", sort: "failing", compare: byCause },
  name: { label: "Name", sort: "name", compare: byName },
  state: { label: "State", sort: "state", compare: (one, other) => severity(one) - severity(other) || byCause(one, other) },
  replicas: { label: "Replicas", sort: "-current", compare: (one, other) => other.currentReplicas - one.currentReplicas },
  fullness: { label: "Nearest to max", compare: (one, other) => fullness(other) - fullness(one) },
  rescale: { label: "Last rescale", sort: "-lastScaleTime", compare: (one, other) => rescaled(other) - rescaled(one) },
};

const FIRST_ORDER = "failing"; // of the list, until the reader chooses another

class Model {
  constructor() {
    this.rows = new Map();
    this.order = []; // keys
    this.total = null; // of the server, until all are loaded
    this.counts = null;
    this.complete = false;
    this.search = "";
    this.states = new Set();
    this.kind = null; // of the HPAs that are shown; null: of both
    this.kinds = new Set(); // of all HPAs
    this.sort = FIRST_ORDER;
    this.reverse = false;
    this.outdated = false; // an update would change the order
  }

  // Takes a summary, unless a newer one is known. Returns whether anything changed.
  put(summary) {
    const key = keyOf(summary);
    const known = this.rows.get(key);
    if (known && decided(known) > decided(summary)) return false;
    summary.key = key;
    summary.sortName = `${summary.namespace}\0${summary.name}\0${summary.kind === AUTOSCALER ? 1 : 0}`;
    summary.cause = summary.lastDecision?.group ?? ""; // of a failing HPA
    summary.found = `${key} ${summary.namespace}/${summary.name} ${summary.target.name} ${summary.cause}`.toLowerCase();
    summary.version = (known?.version ?? 0) + 1;
    this.rows.set(key, summary);
    this.kinds.add(summary.kind);
    if (!known) this.outdated = true;
    else if (this.matches(known) !== this.matches(summary)) this.outdated = true;
    else if (this.sort !== "name" && ORDERS[this.sort].compare(known, summary) !== 0) this.outdated = true;
    return true;
  }

  // Drops the HPAs that are not among these keys any more.
  retain(keys) {
    const gone = [...this.rows.keys()].filter((key) => !keys.has(key));
    if (!gone.length) return;
    for (const key of gone) this.rows.delete(key);
    this.order = this.order.filter((key) => this.rows.has(key));
    this.kinds = new Set([...this.rows.values()].map((row) => row.kind));
  }

  searched(row) {
    return (!this.kind || row.kind === this.kind) && (!this.search || row.found.includes(this.search));
  }

  matches(row) {
    if (!this.searched(row)) return false;
    return this.states.size === 0 || row.states.some((state) => this.states.has(state));
  }

  // Filters and sorts anew.
  arrange() {
    const { compare } = ORDERS[this.sort];
    const sign = this.reverse ? -1 : 1;
    const found = [...this.rows.values()].filter((row) => this.matches(row));
    found.sort((one, other) => sign * compare(one, other) || byName(one, other));
    this.order = found.map((row) => row.key);
    this.outdated = false;
  }

  // The number of HPAs in each state, of those that the search finds. While HPAs are loaded, those of the server.
  tally() {
    if (!this.complete && this.counts && !this.search && !this.kind) return { all: this.total, ...this.counts };
    const found = { all: 0 };
    for (const state of SEVERITY) found[state] = 0;
    for (const row of this.rows.values()) {
      if (!this.searched(row)) continue;
      found.all += 1;
      for (const state of row.states) if (state in found) found[state] += 1;
    }
    return found;
  }

  // The causes that several of the found HPAs have, as [cause, number], the most frequent first.
  causes() {
    const found = new Map();
    for (const row of this.rows.values()) {
      if (row.cause && this.searched(row)) found.set(row.cause, (found.get(row.cause) ?? 0) + 1);
    }
    return [...found].filter(([, number]) => number > 1).sort((one, other) => other[1] - one[1] || byText(one[0], other[0]));
  }
}
