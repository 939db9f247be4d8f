/** Numbers and times as people read them, in the units of the command line. '-' is "not known", never zero. */

export const UNKNOWN = "-";

/** @typedef {number | null | undefined} Maybe */

/** @type {[string, number][]} */
const UNITS = [
  ["PiB", 1024 ** 5],
  ["TiB", 1024 ** 4],
  ["GiB", 1024 ** 3],
  ["MiB", 1024 ** 2],
  ["KiB", 1024],
];

/** @param {Maybe} count */
export function bytes(count) {
  if (count === null || count === undefined) return UNKNOWN;
  for (const [unit, size] of UNITS) {
    if (Math.abs(count) >= size * 0.9995) return `${(count / size).toFixed(1)} ${unit}`;
  }
  return `${count.toFixed(0)} B`;
}

/** @param {Maybe} perSecond */
export function rate(perSecond) {
  return perSecond === null || perSecond === undefined ? UNKNOWN : `${bytes(perSecond)}/s`;
}

/** @param {Maybe} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return UNKNOWN;
  if (seconds < 0.9995) return `${(seconds * 1000).toFixed(0)}ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)}s`;
  const whole = Math.round(seconds);
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor(whole / 60) % 60;
  const rest = String(whole % 60).padStart(2, "0");
  return hours ? `${hours}h${String(minutes).padStart(2, "0")}m${rest}s` : `${minutes}m${rest}s`;
}

/** With three digits below a second, as benchmarks need them. @param {Maybe} seconds */
export function fineDuration(seconds) {
  if (!seconds || seconds >= 0.9995) return duration(seconds);
  return `${(seconds * 1000).toPrecision(3)}ms`;
}

/** @param {Maybe} usec */
export function seconds(usec) {
  return duration(usec === null || usec === undefined ? null : usec / 1e6);
}

/** @param {Maybe} value */
export function percent(value) {
  if (value === null || value === undefined) return UNKNOWN;
  return value >= 10 || value === 0 ? `${value.toFixed(0)}%` : `${value.toFixed(1)}%`;
}

/** Of all, in the precision of the command line: '100%' is all of them. @param {Maybe} part  0 to 1 */
export function share(part) {
  if (part === null || part === undefined) return UNKNOWN;
  const percents = Math.min(99.9, Math.max(0.1, 100 * part)); // never rounded to all or nothing
  return part === 1 || part === 0 ? `${100 * part}%` : `${percents.toFixed(1)}%`;
}

/** @param {Maybe} value */
export function count(value) {
  return value === null || value === undefined ? UNKNOWN : value.toLocaleString("en-US");
}

/**
 * '1 job', '2,000 jobs'.
 * @param {number} number
 * @param {string} noun
 */
export function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/**
 * The command as one would type it in a shell.
 * @param {{ argv: readonly string[], is_shell?: boolean | undefined }} job
 */
export function commandLine(job) {
  return job.is_shell ? job.argv.join(" ") : job.argv.map(quoted).join(" ");
}

/** @param {string} argument */
function quoted(argument) {
  return /^[^\s'"\\$&|;<>()*?[\]#~!`{}]+$/.test(argument) ? argument : `'${argument.replaceAll("'", "'\\''")}'`;
}

/** @param {Maybe} us */
export function time(us) {
  if (us === null || us === undefined) return UNKNOWN;
  const at = new Date(us / 1000);
  return `${day(at)} ${at.toTimeString().slice(0, 8)}`;
}

/**
 * Time without the date where it is today's.
 * @param {Maybe} us
 */
export function shortTime(us) {
  if (us === null || us === undefined) return UNKNOWN;
  const at = new Date(us / 1000);
  const clock = at.toTimeString().slice(0, 8);
  return day(at) === day(new Date()) ? clock : `${day(at)} ${clock.slice(0, 5)}`;
}

/**
 * '12s ago', '3h ago'.
 * @param {Maybe} us
 * @param {number} [nowMs]
 */
export function ago(us, nowMs = Date.now()) {
  if (us === null || us === undefined) return UNKNOWN;
  const passed = Math.max(0, nowMs / 1000 - us / 1e6);
  if (passed < 60) return `${Math.floor(passed)}s ago`;
  if (passed < 3600) return `${Math.floor(passed / 60)}m ago`;
  if (passed < 2 * 86400) return `${Math.floor(passed / 3600)}h ago`;
  return `${Math.floor(passed / 86400)}d ago`;
}

/** The reader's time zone, as shown in the foot of the page. */
export function timeZone() {
  return Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
}

/** @param {Date} at */
function day(at) {
  const month = String(at.getMonth() + 1).padStart(2, "0");
  return `${at.getFullYear()}-${month}-${String(at.getDate()).padStart(2, "0")}`;
}
