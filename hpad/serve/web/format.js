// Numbers, times and quantities for people.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const numbers = new Intl.NumberFormat("en");
const count = (number) => numbers.format(number);
const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

// "4s", "12m", "3h", "5d": how long a span of milliseconds is, in its largest unit.
function span(milliseconds) {
  const size = Math.abs(milliseconds);
  if (size < MINUTE) return `${Math.floor(size / SECOND)}s`;
  if (size < HOUR) return `${Math.floor(size / MINUTE)}m`;
  if (size < 2 * DAY) return `${Math.floor(size / HOUR)}h`;
  return `${Math.floor(size / DAY)}d`;
}

function ago(time, now = Date.now()) {
  const passed = now - time;
  if (passed < -2 * SECOND) return `in ${span(passed)}`;
  return passed < SECOND ? "now" : `${span(passed)} ago`;
}

const twoDigits = (number) => String(number).padStart(2, "0");

// "14:03:22" in the time zone of the reader.
function clock(time, withSeconds = true) {
  const date = new Date(time);
  const short = `${twoDigits(date.getHours())}:${twoDigits(date.getMinutes())}`;
  return withSeconds ? `${short}:${twoDigits(date.getSeconds())}` : short;
}

const days = new Intl.DateTimeFormat("en", { month: "short", day: "numeric" });
const sameDay = (one, other) => new Date(one).toDateString() === new Date(other).toDateString();

// "14:03:22", with the day where it is not today.
const moment = (time, now = Date.now()) =>
  sameDay(time, now) ? clock(time) : `${days.format(new Date(time))}, ${clock(time)}`;

// A <time> whose text follows the clock: main.js renews it every second.
function timeAgo(text, className = "") {
  const time = Date.parse(text);
  return h("time", { datetime: text, "data-ago": time, class: className, title: moment(time) }, ago(time));
}

// The text with long words, such as URLs, cut in their middle, so that what follows them has room.
const withoutLongWords = (text) => text.replace(/[^\s"'(]{41,}/g, (word) => {
  const letters = [...word];
  return letters.length > 40 ? `${letters.slice(0, 24).join("")}…${letters.slice(-15).join("")}` : word;
});

const FACTORS = {
  n: 1e-9, u: 1e-6, m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

// The number that a text such as "59%", "6.5", "250m" or "1.5Gi" begins with; NaN without one.
function amount(text) {
  const found = /^(-?[0-9.]+(?:e[0-9]+)?)(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE])?(?![A-Za-z])/.exec(text ?? "");
  return found ? Number(found[1]) * (FACTORS[found[2]] ?? 1) : NaN;
}

// "2.35": at most three significant digits below 100, whole numbers above.
function short(number) {
  if (!Number.isFinite(number)) return "–";
  return Math.abs(number) >= 100 ? count(Math.round(number)) : String(Number(number.toPrecision(3)));
}

// A quantity for people: "250m" stays, "50447m" becomes "50.4", and "41943040" bytes become "40Mi".
function quantity(text, unit = "") {
  const number = amount(text);
  if (Number.isNaN(number)) return text ?? "";
  if (unit === "bytes" && number >= 1024) {
    const power = Math.min(6, Math.floor(Math.log2(number) / 10));
    return `${short(number / 2 ** (10 * power))}${["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]}`;
  }
  return /^-?[0-9]+m?$/.test(text) && Math.abs(number) >= 1 ? short(number) : text;
}
