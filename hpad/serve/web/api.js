// The JSON API of hpad, and the stream of its decisions.

// Beside the page, whatever path a proxy gives it: `kubectl proxy` puts a long one before it.
const ROOT = new URL(".", location.href).pathname;
const API = `${ROOT}api/v1/`;

class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

// Returns the answer of a path under /api/v1/. Throws ApiError; its status is 0 where hpad does not answer.
async function get(path, parameters = {}, options = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const each of [value].flat()) if (each !== undefined && each !== "") query.append(name, each);
  }
  const unanswered = (error) => {
    throw error.name === "AbortError" ? error : new ApiError("hpad does not answer", 0);
  };
  const url = `${API}${path}${query.size ? `?${query}` : ""}`;
  const response = await fetch(url, { cache: "no-store", ...options }).catch(unanswered);
  if (response.ok) return response.json().catch(unanswered);
  const { error } = await response.json().catch(() => ({})); // a proxy may answer without JSON
  throw new ApiError(error ?? `hpad answers with status ${response.status}`, response.status);
}

const hpaPath = ({ namespace, name }) => `hpas/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;

// Returns all items of a path that answers in pages, at most `most`. `each` is called with every page.
async function getAll(path, parameters, { most = Infinity, each = () => {}, signal } = {}) {
  const items = [];
  let next;
  do {
    const page = await get(path, { ...parameters, continue: next }, { signal });
    items.push(...page.items);
    each(page);
    next = page.continue;
  } while (next && items.length < most);
  return items;
}

const RETRY = 4 * SECOND;
const AGAIN = SECOND / 2;

// The live connection: a stream of decisions, and as long as there is none, a call of `poll` every few seconds.
// It rests while the page is hidden, because a browser opens only six connections to one server.
//
// `decision` is called with each decision, `changed` with the state: live, polling, or lost where hpad does not answer.
// `failed` gets the errors of `poll`.
class Live {
  constructor(owner) {
    this.owner = owner;
    this.state = "connecting";
    this.stream = null;
    this.timer = null;
    document.addEventListener("visibilitychange", () => (document.hidden ? this.stop() : this.start()));
  }

  start() {
    this.stop();
    this.stream = new EventSource(`${API}decisions`);
    this.stream.addEventListener("open", () => {
      this.become("live");
      this.poll();
    });
    this.stream.addEventListener("decision", (event) => this.owner.decision(JSON.parse(event.data)));
    this.stream.addEventListener("error", () => this.ended());
  }

  stop() {
    this.stream?.close();
    this.stream = null;
    clearTimeout(this.timer);
  }

  // hpad ends each stream after some minutes, so the first attempt to follow the next one changes nothing.
  ended() {
    if (this.state !== "live") return this.lost();
    this.state = "reconnecting";
    this.stop();
    this.timer = setTimeout(() => this.start(), AGAIN);
  }

  async lost() {
    this.stop();
    this.timer = setTimeout(() => this.start(), RETRY);
    if (await this.poll()) this.become("polling");
  }

  // Returns whether hpad has answered.
  async poll() {
    try {
      await this.owner.poll();
      return true;
    } catch (error) {
      if (error.status === 0) this.become("lost");
      this.owner.failed(error);
      return error.status !== 0;
    }
  }

  become(state) {
    if (state === this.state) return;
    this.state = state;
    this.owner.changed(state);
  }
}
